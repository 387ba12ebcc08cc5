"""What all packages share: errors, limits, the rules for names. Standard library only."""
