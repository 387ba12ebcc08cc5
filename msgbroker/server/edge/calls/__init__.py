"""Streams and calls as such: how many there may be, whose turn it is, and how each of them ends."""
