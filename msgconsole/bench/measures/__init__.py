"""What was measured: observed, computed, and judged by the targets."""
