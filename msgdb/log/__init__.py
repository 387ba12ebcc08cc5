"""The log's queues: made, sealed, and read."""
