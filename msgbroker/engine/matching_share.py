"""Which share of what a lane reads its group gets, by what it has read lately.

A message counts the less the longer ago it was read: after `REMEMBERED` further ones for some third. What is learnt is
of what the subscriptions ask for; of others a lane begins to learn anew. It is persisted with the cursor, and so it is
the next owner's as well.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from confdb.routes import SubscriptionRoute
from msgdb.lanes.records import MatchingShare

REMEMBERED: Final = 10_000.0
"""So many messages that were read are remembered, the last ones best."""
_SHARE_MIN: Final = 1e-9
"""A smaller share is none: it halves with every few thousand messages, and what is written holds no number so small."""
_ASKED_MAX: Final = 1_000


def asked_of(subscriptions: Iterable[SubscriptionRoute], topic_id: int) -> int:
    """Return a number that stands for what *subscriptions* ask for of a topic: of others it is another one.

    Paused ones ask for it, too: what they want comes once they go on.
    """
    asked = {
        (each.event_code, str(each.mode), each.expression or "") for each in subscriptions if each.topic_id == topic_id
    }
    return _number_of(tuple(sorted(asked)))


# Asked for each lane whenever the configuration changes.
@lru_cache(maxsize=_ASKED_MAX)
def _number_of(asked: tuple[tuple[str, str, str], ...]) -> int:
    digest = hashlib.blake2b(json.dumps(asked).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class MatchingMeter:
    """Learns the share. Whoever reads only adds to two counts; they are weighed when it is asked for."""

    __slots__ = ("_asked", "_denied", "_matched_weight", "_read_weight", "matched", "read")

    def __init__(self, learnt: MatchingShare) -> None:
        self.read = 0
        """Messages that were read since the share was last asked for."""
        self.matched = 0
        """Those of them that the group gets."""
        self._asked = learnt.asked
        self._read_weight = learnt.read
        self._matched_weight = learnt.share * learnt.read
        self._denied = 0

    def ask(self, asked: int) -> None:
        """Learn of what is asked for from now on; what was learnt of something else says nothing of it."""
        if asked != self._asked:
            self._asked = asked
            self.read = self.matched = 0
            self._read_weight = self._matched_weight = 0.0

    def share(self, denied: int) -> MatchingShare:
        """Return what is known by now. *denied*: of how many messages, in all, that matched the group gets none."""
        # What was read before may be denied only now: then it is fewer than none.
        gained = self.matched - (denied - self._denied)
        kept = math.exp(-self.read / REMEMBERED)
        weight_each = REMEMBERED * (1.0 - kept) / self.read if self.read else 1.0
        self._read_weight = self._read_weight * kept + weight_each * self.read
        self._matched_weight = max(0.0, self._matched_weight * kept + weight_each * gained)
        self.read = self.matched = 0
        self._denied = denied
        share = min(1.0, self._matched_weight / self._read_weight) if self._read_weight else 0.0
        if share < _SHARE_MIN:
            share = self._matched_weight = 0.0
        return MatchingShare(self._asked, share, self._read_weight)
