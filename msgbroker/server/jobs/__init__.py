"""Jobs: acts on many messages, one step after the other, in turns with all else that the broker does."""
