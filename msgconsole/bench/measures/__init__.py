"""What a run measured: observed while it ran, made into results, and compared with the targets."""
