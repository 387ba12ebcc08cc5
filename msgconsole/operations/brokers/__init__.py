"""What only brokers' memory has: all of them are asked, side by side; and one is asked to end a connection."""
