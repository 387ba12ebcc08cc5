"""The store's table names, for readers that do without SQLAlchemy (Spark, plain SQL)."""

from __future__ import annotations

from typing import Final

QUEUE: Final = "queue"
MESSAGE: Final = "message"
PUBLISHER_FRAME: Final = "publisher_frame"
CURSOR: Final = "cursor"
REDELIVERY: Final = "redelivery"
DEAD_LETTER: Final = "dead_letter"
ALARM: Final = "alarm"
LOG_HISTORY: Final = "log_history"
CONFIG_MARK: Final = "config_mark"
EXPRESSION_FAILURE: Final = "expression_failure"
USAGE_MINUTE: Final = "usage_minute"
USAGE_BROKER: Final = "usage_broker"
BACKLOG_MINUTE: Final = "backlog_minute"
ARCHIVE_POLICY: Final = "archive_policy"
ARCHIVE_DAY: Final = "archive_day"
ARCHIVE_RUN: Final = "archive_run"
ARCHIVE_RANGE: Final = "archive_range"
ACT: Final = "act"
JOB: Final = "job"
JOB_FAILURE: Final = "job_failure"
REDRIVE: Final = "redrive"
TRACE_EVENT: Final = "trace_event"
TRIAL: Final = "trial"
BROKER_REQUEST: Final = "broker_request"


def partition_name(table: str, day_yyyymmdd: str) -> str:
    """Return the name of *table*'s partition for a day, e.g. `message_p20260131`."""
    return f"{table}_p{day_yyyymmdd}"
