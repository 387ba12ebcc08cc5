"""The lane: delivery of one cursor as a pure state machine."""
