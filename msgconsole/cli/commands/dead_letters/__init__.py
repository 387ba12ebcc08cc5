"""Dead letters: listed, shown, redriven, purged."""
