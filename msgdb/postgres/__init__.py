"""The way to PostgreSQL: connections, its errors, its binary formats."""
