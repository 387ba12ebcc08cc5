"""How long it takes to find a message among millions, alone and beside a publisher that does not pause."""
