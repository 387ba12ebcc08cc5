"""What a center is behind its face: one core for asyncio, blocking code and tests; its loop, its signals, its end."""
