"""What lanes persist: cursors with their leases, redeliveries and dead letters."""
