"""The log as this broker knows it: messages in memory, how they are encoded, and which queues a topic has."""
