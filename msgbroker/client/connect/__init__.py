"""Finding a broker, connecting to it, saying why that fails, and what a fork means for connections."""
