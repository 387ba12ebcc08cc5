"""A group's streams to its brokers: credit, deliveries in, settlements out."""
