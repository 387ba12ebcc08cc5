"""The files of the archive: how they are written, listed in a manifest, held against the store, and read."""
