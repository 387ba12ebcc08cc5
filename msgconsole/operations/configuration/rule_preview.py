"""What a stress rule that is added or removed would mark, and which groups would not get it, or would: its dry run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from confdb.routes import Snapshot, StressOperator, TopicRoute
from confdb.services.changes import Rehearsed
from msgbroker.contract.names import ANY_EVENT_CODE
from msgbroker.engine.stress import is_stress
from msgconsole.operations.configuration.foretelling import span_of
from msgconsole.operations.configuration.newest import NamedType, foretell_group, read_newest
from msgconsole.operations.configuration.rehearsing import FieldChange, changed_fields, rehearse
from msgconsole.operations.stores import Stores
from msgdb.log.found import FoundMessage

TOPICS_MAX: Final = 50
"""So many topics of the namespace are looked at."""
OF_TOPIC_MAX: Final = 1_000
"""So many of the newest messages of each are."""
LOOK_SECONDS_MAX: Final = 20.0
"""For so long topics are looked at: what was not reached by then is named."""


@dataclass(frozen=True, slots=True)
class GroupShare:
    """What a group would get of messages that are marked otherwise."""

    group: str
    newly: int
    no_longer: int


@dataclass(frozen=True, slots=True)
class Marked:
    """What would be marked otherwise of a topic's newest messages, were they published then."""

    topic: str
    looked_at: int
    oldest_at: datetime | None
    newest_at: datetime | None
    newly_marked: int
    no_longer_marked: int
    refused: int
    """How many of those that are newly marked the topic would refuse, as it takes no stress traffic."""
    groups: tuple[GroupShare, ...]
    """The groups that would get something else than now."""
    is_cut: bool
    """Whether it took so long that not all groups were asked."""


@dataclass(frozen=True, slots=True)
class RulePreview:
    """What would be different."""

    changes: tuple[FieldChange, ...]
    topics: tuple[Marked, ...]
    """Those that have messages which would be marked otherwise."""
    topics_looked_at: int
    not_looked_at: tuple[str, ...]
    """The topics that were not, because there are so many, or it took so long."""


async def preview_rule(
    stores: Stores,
    namespace: str,
    header: str,
    operator: StressOperator,
    value: str,
    *,
    added: bool,
    reason: str = "",
) -> RulePreview:
    """Return what adding a stress rule would mean, or removing it. Changes nothing.

    Raises as `Stress.add_rule` and `Stress.remove_rule` do, and LookTooLongError.
    """
    _, rehearsed = await rehearse(
        stores,
        lambda service: (service.stress.add_rule if added else service.stress.remove_rule)(
            namespace, header, operator, value
        ),
        reason=reason,
    )
    topics = [topic for (of, _), topic in sorted(rehearsed.before.topics.items()) if of == namespace]
    ends_at = time.monotonic() + LOOK_SECONDS_MAX
    marked: list[Marked] = []
    looked_at = 0
    for topic in topics[:TOPICS_MAX]:
        if time.monotonic() >= ends_at:
            break
        marked.append(await _look_at(stores, rehearsed, topic, ends_at))
        looked_at += 1
    return RulePreview(
        changes=changed_fields(rehearsed),
        topics=tuple(each for each in marked if each.newly_marked or each.no_longer_marked),
        topics_looked_at=looked_at,
        not_looked_at=tuple(topic.name for topic in topics[looked_at:]),
    )


async def _look_at(stores: Stores, rehearsed: Rehearsed, topic: TopicRoute, ends_at: float) -> Marked:
    newest = await read_newest(stores, topic.topic_id, ANY_EVENT_CODE, OF_TOPIC_MAX)
    messages = [message for message in newest.messages if message.target_group is None]
    newly = _marked_by_one(messages, rehearsed.after, rehearsed.before, topic)
    no_longer = _marked_by_one(messages, rehearsed.before, rehearsed.after, topic)
    shares: list[GroupShare] = []
    is_cut = False
    for (_, name), group in sorted(rehearsed.before.groups.items()):
        is_concerned = group.namespace == topic.namespace and any(
            each.topic_id == topic.topic_id for each in group.subscriptions
        )
        if is_concerned and (newly or no_longer):
            asked = NamedType(topic.namespace, name, topic.name, ANY_EVENT_CODE)
            seconds = ends_at - time.monotonic()
            told = await foretell_group(
                [*newly, *no_longer], rehearsed.before, rehearsed.after, asked, seconds_max=seconds
            )
            is_cut |= told.is_cut
            shares.append(GroupShare(name, told.newly, told.no_longer))
    others = tuple(share for share in shares if share.newly or share.no_longer)
    refused = len(newly) if topic.stress_refused else 0
    return Marked(topic.name, len(messages), *span_of(messages), len(newly), len(no_longer), refused, others, is_cut)


def _marked_by_one(
    messages: Sequence[FoundMessage], marking: Snapshot, other: Snapshot, topic: TopicRoute
) -> list[FoundMessage]:
    """Return the messages that the rules of one configuration mark, and those of the other do not."""
    rules, others = (each.stress_rules.get(topic.namespace, ()) for each in (marking, other))
    return [
        message
        for message in messages
        if is_stress(message.headers or {}, rules) and not is_stress(message.headers or {}, others)
    ]
