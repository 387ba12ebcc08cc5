"""How long finding took, as a page for people."""

from __future__ import annotations

from typing import Any, Final

from msgconsole.bench.measures.targets import Verdict
from msgconsole.bench.report.markdown import TARGET_COLUMNS, table, target_row
from tests.bench.finding.filled_store import QUEUES
from tests.bench.finding.publisher import ROWS_AT_ONCE

ALONE: Final = "alone"
BESIDE: Final = "beside a publisher"
BY_ID: Final = "by id"
BY_KEY: Final = "by key"
BY_TIME: Final = "by topic and time"

_TARGETS_MS: Final = {BY_ID: 50, BY_KEY: 50, BY_TIME: 200}


def document(measured: dict[str, Any]) -> str:
    """Return the page."""
    sizes = measured["sizes"]
    sources = f"commit {measured['commit']}{' with local changes' if measured['dirty'] else ''}"
    machine = measured["machine"]
    shown = [(how, each) for how in (ALONE, BESIDE) for each in ("p50", "p95", "max")]
    rows = [[name, *(f"{measured[how][name][f'{each}_ms']:g}" for how, each in shown)] for name in measured[ALONE]]
    parts = [
        "# Benchmark: finding messages",
        (
            f"{measured['started_at'][:16].replace('T', ' ')} UTC, {sources}. All that was measured is in"
            " [finding.json](finding.json)."
        ),
        (
            f"{sizes['messages']:,} messages of {sizes['body_bytes']:,} bytes of body, in {QUEUES} queues of"
            f" {sizes['days']} days; {sizes['looks']} looks of each kind, each with the configuration loaded anew. The"
            f" publisher stores {ROWS_AT_ONCE} messages a transaction, without a pause."
        ),
        "## Targets",
        table(TARGET_COLUMNS, [target_row(verdict) for verdict in verdicts(measured)]),
        "## Milliseconds",
        table(["what", *(f"{how}, {each}" for how, each in shown)], rows),
        f"Measured on {machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB.",
    ]
    return "\n\n".join(parts) + "\n"


def verdicts(measured: dict[str, Any]) -> list[Verdict]:
    """Return the targets in their order, with what was measured of each."""
    return [
        Verdict(f"{name}, {how}, p95", "ms", None, most, measured[how][name]["p95_ms"])
        for name, most in _TARGETS_MS.items()
        for how in (ALONE, BESIDE)
    ]
