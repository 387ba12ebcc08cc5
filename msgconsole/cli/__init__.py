"""The `msgcenter` command line."""
