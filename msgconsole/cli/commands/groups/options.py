"""The options that several commands of groups and subscriptions share."""

from __future__ import annotations

from typing import Annotated

import typer

from msgbroker.contract import limits

Expression = Annotated[
    str | None,
    typer.Option(
        "--expression",
        help="Only messages whose headers satisfy this (CEL over `headers`). A message without a header that it "
        'reads does not match, with `!=` as well: ask first, \'"region" in headers && headers.region != "hz"\' '
        "(a warning says where). "
        "Cheap: comparing headers by name, `in` a list, one macro. Refused as too costly (50,000 steps with 64 "
        "headers): a macro inside of another, a long pattern for `matches` or one from the message.",
    ),
]
AckTimeout = Annotated[
    float | None,
    typer.Option(
        "--ack-timeout-seconds",
        help="Seconds without an answer after which the next attempt is made, "
        f"{limits.ACK_TIMEOUT_SECONDS_MIN:g} to {limits.ACK_TIMEOUT_SECONDS_MAX:g}; "
        f"{limits.ACK_TIMEOUT_SECONDS_DEFAULT:g} at first.",
    ),
]
HandleMax = Annotated[
    float | None,
    typer.Option(
        "--handle-seconds-max",
        help="A handler may take so many seconds, as long as its instance extends its time. 0: the ack timeout counts.",
    ),
]
RetrySchedule = Annotated[
    str | None,
    typer.Option(
        "--retry-schedule",
        help="Seconds before each further attempt, with commas between them, e.g. 10,30,60 for four attempts in all. "
        "`none`: one attempt. At first 16 waits, from 10 seconds to 2 hours.",
    ),
]
AttemptsMax = Annotated[
    int | None,
    typer.Option(
        "--attempts-max",
        help="Attempts, the first one counted, after which a message is a dead letter. At first as many as the retry "
        "schedule has waits, and one.",
    ),
]
UnsettledMax = Annotated[
    int | None,
    typer.Option(
        "--unsettled-max",
        help=f"Messages that one instance may hold unsettled; {limits.UNSETTLED_MAX_DEFAULT:,} at first.",
    ),
]


def read_schedule(text: str | None) -> tuple[float, ...] | None:
    """Return the waits that were typed; None: none were."""
    if text is None:
        return None
    if text.strip().lower() == "none":
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        message = f"{text!r} is not a list of seconds like 10,30,60"
        raise typer.BadParameter(message, param_hint="--retry-schedule") from error
