"""What brokers report to everybody who can read the store: alarms, and expressions that fail."""
