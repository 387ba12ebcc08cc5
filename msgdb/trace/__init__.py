"""What happened to messages, as brokers noted it: written in batches, read for one message at a time."""
