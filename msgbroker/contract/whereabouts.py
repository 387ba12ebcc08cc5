"""Where a message is with the broker that owns its lane: the words that the broker and its callers have for it."""

from __future__ import annotations

from enum import StrEnum


class Stand(StrEnum):
    """What a broker knows of a message of a lane."""

    UNKNOWN = "UNKNOWN"
    """It said something that this version does not know."""
    NOT_OWNED = "NOT_OWNED"
    """The lane is not this broker's."""
    UNREAD = "UNREAD"
    """The lane has not read it, or has let go of it to be read again: what becomes of it is not decided."""
    READY = "READY"
    """It is to be handed out as soon as an instance has room; or its body is being fetched for that."""
    IN_FLIGHT = "IN_FLIGHT"
    """It is with an instance that has not answered."""
    WAITING = "WAITING"
    """It comes again later."""
    SHELVED = "SHELVED"
    """Only paused subscriptions ask for it."""
    SETTLED = "SETTLED"
    """Nothing more happens to it in this lane; the store may not have that yet."""
