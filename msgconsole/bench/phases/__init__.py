"""What a run does: the center it loads, what each phase does with it, and its workers as the driver sees them."""
