"""`msgcenter demo`: a scenario with its expected counts, and its run."""
