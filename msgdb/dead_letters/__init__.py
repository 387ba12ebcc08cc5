"""Dead letters: what is copied of a message, how they are read and chosen, and which were delivered again."""
