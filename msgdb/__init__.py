"""The message store: tables, append, read, cursors, redelivery, dead letters, retention, embedded PostgreSQL."""
