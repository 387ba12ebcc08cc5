"""The days that the log is partitioned by: made ahead, and dropped when their time has come."""
