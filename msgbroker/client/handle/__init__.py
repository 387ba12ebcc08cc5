"""Calling handlers: reading what each asks for, running it, and what it says of its message."""
