"""This broker among its equals: heartbeats, which lanes are its own, their leases, and moving them."""
