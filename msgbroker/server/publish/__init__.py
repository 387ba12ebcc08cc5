"""From a publisher's messages to the store: what is admitted waits here for the committer's next transaction."""
