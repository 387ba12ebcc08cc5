"""What was measured of the archive, as a page for people."""

from __future__ import annotations

import statistics
from typing import Any, Final

from msgconsole.bench.measures.targets import Verdict
from msgconsole.bench.report.markdown import TARGET_COLUMNS, table, target_row
from tests.bench.archive.beside_broker import ALONE, BESIDE
from tests.bench.archive.by_jdbc import MISSING
from tests.bench.archive.keeping_up import EVERY_SECONDS
from tests.bench.archive.little_memory import MEMORY
from tests.bench.archive.stored_day import BODY_BYTES, QUEUES, TOPICS

_MIB: Final = 1 << 20
_RATE_MIN: Final = 180_000
_OF_JDBC_MIN: Final = 1.3
_BROKER_MIN: Final = 0.7
_FOLLOWED_MIN: Final = 0.9
_UNIT: Final = "msg/s"


def document(measured: dict[str, Any]) -> str:
    """Return the page."""
    sources = f"commit {measured['commit']}{' with local changes' if measured['dirty'] else ''}"
    parts = [
        "# Benchmark: the archive",
        (
            f"{measured['started_at'][:16].replace('T', ' ')} UTC, {sources}. All that was measured is in"
            " [archive.json](archive.json)."
        ),
        (
            f"Messages have {BODY_BYTES:,} random bytes of body, a key and three headers, in {QUEUES} queues of"
            f" {len(TOPICS)} topics. PostgreSQL (fsync on), Spark, brokers and publishers share the machine."
        ),
        "## Targets",
        table(TARGET_COLUMNS, [target_row(verdict) for verdict in verdicts(measured)]),
        *_comparison(measured.get("comparison")),
        *_memory(measured.get("little_memory")),
        *_beside(measured.get("beside_broker")),
        *_open_day(measured.get("keeping_up")),
        "## Measured on",
        "\n".join(f"- {name}: {value}" for name, value in _surroundings(measured).items()),
    ]
    return "\n\n".join(parts) + "\n"


def verdicts(measured: dict[str, Any]) -> list[Verdict]:
    """Return the targets in their order, with what was measured of each."""
    comparison, beside, open_day = (measured.get(each) for each in ("comparison", "beside_broker", "keeping_up"))
    rate = _median_rate(comparison, "archived") if comparison else None
    by_jdbc, checked = (_of_jdbc(comparison, way) for way in ("by_jdbc", "by_jdbc_checked"))
    of_broker = None
    if beside:
        of_broker = statistics.median(beside["broker"][BESIDE]) / statistics.median(beside["broker"][ALONE])
    followed = open_day["followed_per_second"] / open_day["published_per_second"] if open_day else None
    return [
        Verdict("a day archived and verified, warm", _UNIT, _RATE_MIN, None, rate),
        Verdict("the same, of JDBC that checks its files as well", "×", _OF_JDBC_MIN, None, checked),
        Verdict("the same, of JDBC that checks nothing", "×", _OF_JDBC_MIN, None, by_jdbc),
        Verdict("broker end to end beside an archive, of alone", "×", _BROKER_MIN, None, of_broker),
        Verdict("open day followed, of what is published", "×", _FOLLOWED_MIN, None, followed),
    ]


def _of_jdbc(comparison: dict[str, Any] | None, way: str) -> float | None:
    if not comparison or not comparison.get(way):
        return None
    return _median_rate(comparison, "archived") / _median_rate(comparison, way)


def _median_rate(comparison: dict[str, Any], what: str) -> float:
    """Return the median of all rounds but the first, which is of a session that has done nothing yet."""
    return statistics.median(_rate(comparison["messages"], each) for each in comparison[what][1:])


def _rate(messages: int, run: dict[str, Any]) -> float:
    return messages / _seconds(run)


def _seconds(run: dict[str, Any]) -> float:
    return float(run["ended_at"] - run["started_at"])


def _comparison(comparison: dict[str, Any] | None) -> list[str]:
    if comparison is None:
        return []
    messages = comparison["messages"]
    rows = [
        _compared(name, messages, comparison[what])
        for name, what in (
            ("archive, read back and compared", "archived"),
            ("JDBC to Spark's Parquet, checked", "by_jdbc_checked"),
            ("JDBC to Spark's Parquet", "by_jdbc"),
        )
        if comparison.get(what)
    ]
    files = comparison["archived"][0]
    return [
        "## A day that is over",
        (
            f"{messages:,} messages, {files['files']} files of {files['bytes'] / files['files'] / _MIB:,.0f} MiB, on"
            " two threads of one Spark session; from the call of the job to its return, in turns. CPU is µs a message"
            " of PostgreSQL, Java, the Python workers and the driver, the median of the warm rounds; so is how many"
            " cores that took, and those of other processes of the machine."
        ),
        table(("how", "msg/s, warm", "rounds", "cold", "CPU µs/msg", "cores in use"), rows),
        *([] if comparison.get("by_jdbc") else [f"Not compared with JDBC: {MISSING}."]),
    ]


def _compared(name: str, messages: int, runs: list[dict[str, Any]]) -> tuple[str, ...]:
    cold, *warm = [_rate(messages, run) for run in runs]
    spent = [
        f"{statistics.median(run['cpu_seconds'].get(kind, 0.0) for run in runs[1:]) / messages * 1e6:.1f}"
        for kind in ("PostgreSQL", "Java", "Python workers", "driver")
    ]
    rates = ", ".join(f"{rate:,.0f}" for rate in warm)
    own = statistics.median(sum(run["cpu_seconds"].values()) / _seconds(run) for run in runs[1:])
    others = statistics.median(run["others_cpu_seconds"] / _seconds(run) for run in runs[1:])
    cores = f"{own:.2f}, others {others:.2f}"
    return name, f"{statistics.median(warm):,.0f}", rates, f"{cold:,.0f}", " + ".join(spent), cores


def _memory(archived: dict[str, Any] | None) -> list[str]:
    if archived is None:
        return []
    peaks = ", ".join(f"{kind} {size / _MIB:,.0f} MiB" for kind, size in sorted(archived["rss_bytes"].items()))
    return [
        "## In little memory",
        (
            f"{archived['rows']:,} messages with `spark.driver.memory={MEMORY}` (in local mode the executor's):"
            f" {archived['files']} files at {_rate(archived['rows'], archived):,.0f} msg/s. Most resident memory at any"
            f" moment, pages that processes share counted for each: {peaks}; the largest Python worker"
            f" {archived['largest_worker_bytes'] / _MIB:,.0f} MiB."
        ),
    ]


def _beside(beside: dict[str, Any] | None) -> list[str]:
    if beside is None:
        return []
    alone = statistics.median(beside["broker"][ALONE])
    rows = [
        (
            how,
            f"{statistics.median(rates):,.0f}",
            ", ".join(f"{rate:,.0f}" for rate in rates),
            f"{statistics.median(rates) / alone:.2f} ×",
            f"{statistics.median(beside['archive'][how]):,.0f}" if how in beside["archive"] else "",
        )
        for how, rates in beside["broker"].items()
    ]
    return [
        "## Beside a broker",
        (
            "One publisher, one group, end to end, and a day that is archived again and again out of the same"
            " PostgreSQL on the same cores meanwhile; in turns, medians."
        ),
        table(("how", "broker msg/s", "rounds", "of alone", "archive msg/s"), rows),
    ]


def _open_day(followed: dict[str, Any] | None) -> list[str]:
    if followed is None:
        return []
    behind = ", ".join(f"{seconds:.1f} s" for seconds in followed["behind_seconds"])
    return [
        "## The open day",
        (
            f"{followed['messages']:,} messages published at {followed['published_per_second']:,.0f} msg/s, and written"
            f" at {followed['followed_per_second']:,.0f} msg/s in {len(followed['batches'])} batches (one begins every"
            f" {EVERY_SECONDS:g} s, or when the one before is done). After a third, two thirds and all of the time the"
            f" oldest message that was not written was {behind} old; {followed['behind_messages']:,} were missing at"
            f" the end, and were there {followed['caught_up_after_seconds']:.1f} s later."
        ),
    ]


def _surroundings(measured: dict[str, Any]) -> dict[str, Any]:
    loads = ", ".join(f"{load:.1f} ({name})" for name, load in measured["load_before"].items())
    sizes = ", ".join(f"{name} {size:,}" for name, size in measured["sizes"].items())
    return {
        **measured["machine"],
        "load before": loads,
        **measured["versions"],
        "sizes": sizes,
    }
