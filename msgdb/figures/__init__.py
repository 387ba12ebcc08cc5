"""What brokers count of each minute, and how far groups were behind in it: written every ten seconds."""
