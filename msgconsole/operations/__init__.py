"""Acts that need configuration and store together, one file each: no HTTP, no printing."""
