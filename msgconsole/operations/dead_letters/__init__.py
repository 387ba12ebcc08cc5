"""Dead letters: which ones people mean, and redriving or purging them."""
