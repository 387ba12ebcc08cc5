"""The metadata: models, the services that change it, the snapshot brokers route by, the broker registry."""
