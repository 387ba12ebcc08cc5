"""The `msgcenter` command line: what is typed, asked for and printed. What a command does lies in the rooms below."""
