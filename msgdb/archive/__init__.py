"""Archived before dropped: what may be dropped, and who has archived it."""
