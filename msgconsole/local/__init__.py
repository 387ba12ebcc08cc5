"""What runs on this machine and where it is: databases, broker processes, and the settings they are given."""
