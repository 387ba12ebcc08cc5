"""Errors about what is registered: the named thing is not, or something of that name is already.

Here belongs every leaf of NotFoundError and AlreadyExistsError.
"""

from __future__ import annotations

from msgbroker.contract.error_families import AlreadyExistsError, NotFoundError
from msgbroker.contract.facts import Fact


def _called(namespace: str) -> str:
    """Return where a name was looked for: in a namespace, or (empty) in all of them."""
    return f"namespace {namespace!r}" if namespace else "any namespace"


class NamespaceNotFoundError(NotFoundError):
    """The namespace is not registered."""

    reason = "NAMESPACE_NOT_FOUND"
    namespace = Fact(str, "")

    def __init__(self, namespace: str) -> None:
        super().__init__(f"namespace {namespace!r} is not registered", namespace=namespace)


class TopicNotFoundError(NotFoundError):
    """The topic is not registered in this namespace."""

    reason = "TOPIC_NOT_FOUND"
    namespace = Fact(str, "")
    topic = Fact(str, "")

    def __init__(self, namespace: str, topic: str) -> None:
        super().__init__(f"topic {topic!r} is not registered in {_called(namespace)}", namespace=namespace, topic=topic)


class EventCodeNotFoundError(NotFoundError):
    """The topic has no such event code, and is not open."""

    reason = "EVENT_CODE_NOT_FOUND"
    topic = Fact(str, "")
    event_code = Fact(str, "")

    def __init__(self, topic: str, event_code: str) -> None:
        super().__init__(
            f"event code {event_code!r} is not registered for topic {topic!r}", topic=topic, event_code=event_code
        )


class GroupNotFoundError(NotFoundError):
    """The group is not registered in this namespace."""

    reason = "GROUP_NOT_FOUND"
    namespace = Fact(str, "")
    group = Fact(str, "")
    kind = Fact(str, "")

    def __init__(self, namespace: str, group: str, kind: str = "subscriber") -> None:
        super().__init__(
            f"{kind} group {group!r} is not registered in {_called(namespace)}",
            namespace=namespace,
            group=group,
            kind=kind,
        )


class NothingSelectedError(NotFoundError):
    """What somebody wants done is about nothing at all: no message, no dead letter is meant by it."""

    reason = "NOTHING_SELECTED"
    kind = Fact(str, "")

    def __init__(self, kind: str) -> None:
        super().__init__(f"there is no {kind} that this is about: nothing was done", kind=kind)


class SubscriptionNotFoundError(NotFoundError):
    """The group has no such subscription."""

    reason = "SUBSCRIPTION_NOT_FOUND"
    group = Fact(str, "")
    topic = Fact(str, "")
    event_code = Fact(str, "")

    def __init__(self, group: str, topic: str, event_code: str) -> None:
        super().__init__(
            f"group {group!r} has no subscription to {topic}/{event_code}",
            group=group,
            topic=topic,
            event_code=event_code,
        )


class ThingNotFoundError(NotFoundError):
    """There is nothing of that kind and name."""

    reason = "THING_NOT_FOUND"
    kind = Fact(str, "")
    name = Fact(str, "")

    def __init__(self, kind: str, name: str, *, namespace: str | None = None, within: str = "") -> None:
        """Say also in which *namespace* there is none, or *within* what of it."""
        where = "" if namespace is None else f" in {within}{_called(namespace)}"
        super().__init__(f"there is no {kind} {name!r}{where}", kind=kind, name=name)


class ThingAlreadyExistsError(AlreadyExistsError):
    """Something of that kind and name is registered."""

    reason = "ALREADY_REGISTERED"
    kind = Fact(str, "")
    name = Fact(str, "")

    def __init__(self, kind: str, name: str, difference: str = "") -> None:
        with_what = f" with {difference}" if difference else ""
        super().__init__(f"{kind} {name!r} is registered already{with_what}", kind=kind, name=name)
