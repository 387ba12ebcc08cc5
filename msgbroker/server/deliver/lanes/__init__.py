"""The lanes that this broker owns: what is known around each, and what the configuration makes of it."""
