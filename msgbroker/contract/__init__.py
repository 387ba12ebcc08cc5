"""What client and server must agree on: errors, limits and name rules. Standard library only."""
