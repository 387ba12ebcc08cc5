"""Append: frames of messages into the log, in one transaction, without a gap."""
