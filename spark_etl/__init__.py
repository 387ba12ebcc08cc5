"""Spark jobs over the message store: read it, and archive its days."""
