"""The job that archives a day, and what keeps the archive in order."""
