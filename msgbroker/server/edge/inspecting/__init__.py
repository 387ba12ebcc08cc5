"""The service `Inspection`: what operators' tools ask a broker for that nobody else knows."""
