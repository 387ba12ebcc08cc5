"""What happens to messages at this broker, noted and written in batches: storing and delivering never wait for it."""
