"""The composition root of a broker process: settings → stores → broker, one chain of contexts."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import psycopg
import structlog

from confdb import features
from confdb.snapshot import SnapshotFeed
from confdb.store import ConfigStore
from msgbroker.server.assembly import assemble
from msgbroker.server.broker import Broker
from msgbroker.server.log.topic_queues import TopicQueues
from msgbroker.server.parts import Stores
from msgbroker.server.settings import BrokerSettings
from msgdb.log.partitions import ensure_ahead
from msgdb.store import MessageStore, SessionLimits

__all__ = ["Broker", "BrokerSettings", "configure_logging", "open_broker", "run_broker"]

log = structlog.get_logger(__name__)

# Of <malloc.h>.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES_MAX: Final = 32 * 1024 * 1024

_SWITCH_SECONDS: Final = 0.000_5
"""How long the event loop keeps the interpreter from the thread that feeds PostgreSQL: a full socket holds what the
server stores in a millisecond, and at Python's 5 ms it would wait for us most of the time."""


@asynccontextmanager
async def open_broker(settings: BrokerSettings) -> AsyncIterator[Broker]:
    """Run a broker in this process for the length of the block.

    Raises PortInUseError, StoreUnavailableError, ConfigUnavailableError or NotMigratedError where it cannot start.
    """
    async with (
        ConfigStore.open(settings.confdb_url.get_secret_value(), owns_sessions=not settings.pooled) as config_store,
        MessageStore.open(
            settings.msgdb_url.get_secret_value(),
            pool_size=settings.store_pool_size,
            pooled=settings.pooled,
            limits=SessionLimits(),
            application_name="msgcenter-broker",
        ) as store,
    ):
        feed = SnapshotFeed(config_store, listen=not settings.pooled, understood=features.UNDERSTOOD)
        await feed.load_once()
        # Before anything is remembered of the log.
        await store.follow_history()
        queues = TopicQueues(store)
        await queues.load()
        await _make_days(store)
        broker = assemble(settings, Stores(config_store, store, feed, queues))
        try:
            await broker.start()
            yield broker
        finally:
            await broker.shut_down()


async def _make_days(store: MessageStore) -> None:
    """Make today's partitions, in a store that nobody has looked after for days. Raises StoreUnavailableError."""
    try:
        async with store.connection() as connection:
            await ensure_ahead(connection)
    except psycopg.Error:
        # The maintenance loop raises the alarm, and an append that misses its day tries it once more.
        log.exception("broker.days_not_made")


async def run_broker(settings: BrokerSettings, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Run a broker until SIGTERM or SIGINT, then drain and return."""
    configure_logging(settings)
    _tune_allocator()
    tune_collector()
    sys.setswitchinterval(_SWITCH_SECONDS)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with open_broker(settings) as broker:
        log.info("broker.ready", address=broker.address, listen=settings.listen)
        if on_ready is not None:
            on_ready(broker.address)
        failing = asyncio.ensure_future(broker.wait_until_failed())
        stopping = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((failing, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if failing.done():
            failing.result()
        failing.cancel()


def _tune_allocator() -> None:
    """Let glibc keep the large buffers it gets back.

    By default whatever is over 128 KiB is mapped for each use and faulted in page by page: a COPY buffer then costs ten
    times what it costs to fill it. Other C libraries do without this.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES_MAX)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES_MAX)


def tune_collector() -> None:
    """Let the cycle collector look less often at what it will not find.

    Messages in memory are many, long-lived for its taste, and never part of a cycle; at the default thresholds it walks
    over all of them every few hundred messages.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def configure_logging(settings: BrokerSettings) -> None:
    """Set up logging for a broker process: one line per event, to standard error."""
    level = logging.getLevelNamesMapping()[settings.log_level]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if settings.log_json else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
