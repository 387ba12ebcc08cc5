"""What is typed: options that commands share, which of them were given, times."""
