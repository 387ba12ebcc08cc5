"""What it costs a broker to count: the same load on one that does, and on one that does not."""
