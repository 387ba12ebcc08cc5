"""What goes in and out of the client's calls: settings, messages, bodies and verdicts."""
