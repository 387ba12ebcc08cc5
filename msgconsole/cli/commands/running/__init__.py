"""What runs on this machine: a center, a broker, the demo, the benchmark; migrating, and showing settings."""
