"""Jobs: acts on many messages, carried out by brokers step by step, whichever of them is alive."""
