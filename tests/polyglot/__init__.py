"""Another language than Python: an example client for Node, and the conformance suite with that client."""
