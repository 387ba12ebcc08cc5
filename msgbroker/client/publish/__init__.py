"""From `publish` to the broker: what waits, what is on its way, and who hears of it."""
