"""From the log to the subscribers: groups, the lanes that this broker owns, and what they persist."""
