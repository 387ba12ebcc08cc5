"""What became of one message with each group of its namespace, and why."""
