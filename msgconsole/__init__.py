"""What operators use: the `msgcenter` command line."""
