"""Namespaces, topics and event codes, and what marks stress traffic."""
