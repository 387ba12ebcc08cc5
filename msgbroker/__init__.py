"""The message broker: its contract, engine, server and Python client."""
