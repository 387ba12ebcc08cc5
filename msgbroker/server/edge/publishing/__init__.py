"""The service `Publisher`: frames and calls in, results out."""
