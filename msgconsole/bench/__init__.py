"""Load against a whole center on this machine, in phases, and what was measured."""
