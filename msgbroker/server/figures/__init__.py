"""What this broker counts of each minute, and how far groups are behind, written where operators can read it."""
