"""Carrying out what was typed: on the configuration, on the message store or on both, open for as long as it takes."""
