"""What a run does: the center it loads, its phases, and the processes of each."""
