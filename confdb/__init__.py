"""The configuration: its tables, the services that change it, the snapshot brokers route by, the broker registry."""
