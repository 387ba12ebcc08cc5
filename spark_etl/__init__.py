"""Spark jobs over the message store (to come)."""
