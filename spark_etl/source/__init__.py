"""The message store as a Spark data source: whole tables, a range of the log, or the log as it goes on."""
