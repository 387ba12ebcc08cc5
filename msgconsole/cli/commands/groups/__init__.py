"""Groups and their subscriptions; where a group stands, and what its messages fail of."""
