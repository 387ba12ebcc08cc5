"""What the log holds, delivered once more: replayed to a group, or tried on one of its instances."""
