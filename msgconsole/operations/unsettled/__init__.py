"""What a group has begun and not settled, the oldest first, and who has it."""
