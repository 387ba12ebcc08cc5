"""Messages: published, subscribed to, found, shown, followed, delivered again."""
