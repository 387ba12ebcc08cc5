"""Trials: messages of the log that one instance is handed beside its lanes, to see what it makes of them.

A trial is a row, begun by whoever types the command and carried out by the broker that has the instance, one message
after the other. It moves no cursor and stores no message; so nobody has to go on with it elsewhere. Each of the two
says every second that it is there, and ends the trial when it hears nothing of the other: nobody has the instance, its
broker is gone, or nobody waits any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from msgbroker.contract.errors import ThingNotFoundError
from msgdb.acts import write_act
from msgdb.jobs.specs import Place
from msgdb.postgres.connections import Connection

KEPT_DAYS: Final = 30
WAITED_SECONDS: Final = 10.0
"""For so long whoever waits for a trial may say nothing; whoever waits says so every second."""
_WANTED_MAX: Final = 100


class TrialState(StrEnum):
    """How a trial stands. Stored: never renamed."""

    WANTED = "WANTED"
    """No broker has taken it yet."""
    TRYING = "TRYING"
    """The broker that has the instance is at it."""
    DONE = "DONE"
    FAILED = "FAILED"
    """It could not be carried out, or not to its end: `error` says why."""
    CANCELLED = "CANCELLED"


class TrialOutcome(StrEnum):
    """What became of one message. Stored: never renamed."""

    ACKNOWLEDGED = "ACKNOWLEDGED"
    FAILED = "FAILED"
    """Its handler failed: it would come again."""
    REJECTED = "REJECTED"
    """It would be a dead letter: its handler said so, or its body could not be read."""
    GIVEN_BACK = "GIVEN_BACK"
    """The instance did not handle it: it has no handler for it, or wants nothing more."""
    TIMED_OUT = "TIMED_OUT"
    """The instance did not answer within the ack timeout, or the time that it extended that to."""
    NOT_HANDED_OUT = "NOT_HANDED_OUT"
    """It was not handed to the instance: `error` says why."""


class Tried(NamedTuple):
    """What became of one message of a trial."""

    outcome: TrialOutcome
    seconds: float
    """How long it took, from the hand-out on."""
    error: str


class WantedTrial(NamedTuple):
    """A trial that no broker has taken yet."""

    trial_id: int
    group_id: int
    instance_id: str
    places: list[Place]


class TrialStatus(NamedTuple):
    """How far a trial is."""

    state: TrialState
    tried: list[Tried]
    """What became of the first messages."""
    error: str | None
    silent_seconds: float
    """For how long nothing was heard of it."""


# What is old goes with what is new: people type trials, and there are few of them.
_FORGET: Final = "DELETE FROM trial WHERE created_at < clock_timestamp() - %(kept_days)s * interval '24 hours'"
_BEGIN: Final = """
INSERT INTO trial (state, namespace, group_id, instance_id, places)
VALUES ('WANTED', %(namespace)s, %(group_id)s, %(instance_id)s, %(places)s)
RETURNING trial_id
"""
# Whoever waited for it may have been killed, and nobody shall be handed anything then; also where the clock was set
# back since: who lives says so by the clock of now.
_IS_WAITED_FOR: Final = """
waited_at BETWEEN clock_timestamp() - %(waited_seconds)s * interval '1 second'
              AND clock_timestamp() + %(waited_seconds)s * interval '1 second'
"""
# By the index on those that are wanted, which are a few.
_LIST_WANTED: Final = f"""
SELECT trial_id, group_id, instance_id, places FROM trial
WHERE state = 'WANTED' AND {_IS_WAITED_FOR} ORDER BY trial_id LIMIT %(limit)s
"""
# By the primary key, all of these. Of two brokers that have an instance of that id, one is first.
_TAKE: Final = f"""
UPDATE trial SET state = 'TRYING', owner = %(owner)s, changed_at = clock_timestamp()
WHERE trial_id = %(trial_id)s AND state = 'WANTED' AND {_IS_WAITED_FOR}
"""
_NOTE: Final = f"""
UPDATE trial SET outcomes = outcomes || %(outcomes)s::jsonb, changed_at = clock_timestamp()
WHERE trial_id = %(trial_id)s AND state = 'TRYING' AND owner = %(owner)s
RETURNING {_IS_WAITED_FOR}
"""
_WAIT: Final = "UPDATE trial SET waited_at = clock_timestamp() WHERE trial_id = %s AND state IN ('WANTED', 'TRYING')"
_END: Final = """
UPDATE trial SET state = %(state)s, error = %(error)s, changed_at = clock_timestamp()
WHERE trial_id = %(trial_id)s AND state = ANY(%(from)s)
"""
_GET: Final = """
SELECT state, outcomes, error, extract(epoch FROM clock_timestamp() - changed_at)::float8 FROM trial
WHERE trial_id = %(trial_id)s AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
"""
_OPEN: Final = (TrialState.WANTED, TrialState.TRYING)


async def begin_trial(
    conn: Connection,
    group_id: int,
    instance_id: str,
    places: Sequence[Place],
    *,
    namespace: str,
    actor: str,
    reason: str,
    thing: str,
    detail: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Write down a trial, and who has begun it; return its id."""
    await conn.execute(_FORGET, {"kept_days": KEPT_DAYS})
    parameters = {
        "namespace": namespace,
        "group_id": group_id,
        "instance_id": instance_id,
        "places": Jsonb([list(each) for each in places]),
    }
    row = await (await conn.execute(_BEGIN, parameters)).fetchone()
    assert row is not None, "one row is returned"
    trial_id: int = row[0]
    said = {"trial_id": trial_id, **detail}
    about = {"namespace": namespace, "thing": thing}
    await write_act(conn, actor=actor, action="message.try", **about, reason=reason, detail=said)
    return trial_id


async def list_wanted(conn: Connection) -> list[WantedTrial]:
    """Return the trials that no broker has taken yet, the oldest first."""
    rows = await (await conn.execute(_LIST_WANTED, {"limit": _WANTED_MAX, "waited_seconds": WAITED_SECONDS})).fetchall()
    return [
        WantedTrial(trial_id, group_id, instance_id, [Place(*place) for place in places])
        for trial_id, group_id, instance_id, places in rows
    ]


async def take_trial(conn: Connection, trial_id: int, owner: UUID) -> bool:
    """Take a trial; False: another broker has, it has ended, or nobody waits for it any more."""
    parameters = {"trial_id": trial_id, "owner": owner, "waited_seconds": WAITED_SECONDS}
    return (await conn.execute(_TAKE, parameters)).rowcount == 1


async def note_tried(conn: Connection, trial_id: int, owner: UUID, tried: Sequence[Tried] = ()) -> bool:
    """Write down what became of messages, or that the trial goes on; False: it has ended, or nobody waits for it."""
    outcomes = Jsonb([[each.outcome, each.seconds, each.error.replace("\0", "")] for each in tried])
    parameters = {"trial_id": trial_id, "owner": owner, "outcomes": outcomes, "waited_seconds": WAITED_SECONDS}
    return await (await conn.execute(_NOTE, parameters)).fetchone() == (True,)


async def wait_for_trial(conn: Connection, trial_id: int) -> None:
    """Write down that somebody waits for a trial. Of one that has ended it changes nothing."""
    await conn.execute(_WAIT, (trial_id,))


async def end_trial(
    conn: Connection, trial_id: int, state: TrialState, error: str | None = None, *, if_in: Sequence[TrialState] = _OPEN
) -> bool:
    """End a trial; False: it is in none of those states (any more), and stays as it is."""
    parameters = {"trial_id": trial_id, "state": state, "error": error, "from": [each.value for each in if_in]}
    return (await conn.execute(_END, parameters)).rowcount == 1


async def get_trial(conn: Connection, trial_id: int, *, namespace: str | None = None) -> TrialStatus:
    """Return how far a trial is, of this namespace where it is given. Raises ThingNotFoundError."""
    row = await (await conn.execute(_GET, {"trial_id": trial_id, "namespace": namespace})).fetchone()
    if row is None:
        raise ThingNotFoundError("trial", str(trial_id), namespace=namespace)
    state, outcomes, error, silent_seconds = row
    tried = [Tried(TrialOutcome(outcome), seconds, said) for outcome, seconds, said in outcomes]
    return TrialStatus(TrialState(state), tried, error, silent_seconds)
