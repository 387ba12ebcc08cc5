"""Acts that need configuration and store together, room by room, one file each: no HTTP, no printing."""
