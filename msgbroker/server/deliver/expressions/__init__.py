"""Evaluating HEADER expressions: cheap ones in turns on the event loop, dear ones in a helper process."""
