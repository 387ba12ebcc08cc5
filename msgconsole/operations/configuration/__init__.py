"""Changes of the configuration that the message store has a say in: subscribing, deleting, requiring the archive."""
