"""The store's tables (SQLAlchemy Core). Columns and why they are so; `migrations/msgdb` makes them.

Nothing here is updated or deleted per message: `message` and `publisher_frame` are append-only and dropped by whole
days; `cursor` is one row per (group, member, queue). No foreign keys into partitioned tables.
"""

from msgdb.tables.acts import act as act
from msgdb.tables.acts import broker_request as broker_request
from msgdb.tables.acts import job as job
from msgdb.tables.acts import job_failure as job_failure
from msgdb.tables.acts import redrive as redrive
from msgdb.tables.archive import archive_day as archive_day
from msgdb.tables.archive import archive_policy as archive_policy
from msgdb.tables.archive import archive_range as archive_range
from msgdb.tables.archive import archive_run as archive_run
from msgdb.tables.base import metadata as metadata
from msgdb.tables.figures import backlog_minute as backlog_minute
from msgdb.tables.figures import usage_broker as usage_broker
from msgdb.tables.figures import usage_minute as usage_minute
from msgdb.tables.lanes import cursor as cursor
from msgdb.tables.lanes import dead_letter as dead_letter
from msgdb.tables.lanes import redelivery as redelivery
from msgdb.tables.log import config_mark as config_mark
from msgdb.tables.log import log_history as log_history
from msgdb.tables.log import message as message
from msgdb.tables.log import publisher_frame as publisher_frame
from msgdb.tables.log import queue as queue
from msgdb.tables.reports import alarm as alarm
from msgdb.tables.reports import expression_failure as expression_failure
from msgdb.tables.trace import trace_event as trace_event
from msgdb.tables.trials import trial as trial
