"""The commands of `msgcenter`, one module each: `main` imports the one that was typed."""
