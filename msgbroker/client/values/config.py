"""What a MessageCenter can be told: one frozen object, made once in its constructor and checked there."""

from __future__ import annotations

import os
import re
import secrets
import socket
import types
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypedDict

import grpc

from msgbroker.client.values.options import check_options, check_types
from msgbroker.client.values.texts import safe_text
from msgbroker.contract import limits, names
from msgbroker.contract.addresses import BROKER_DEFAULT, BROKER_VARIABLE, split_addresses
from msgbroker.contract.errors import InvalidSettingError

OnUnavailable = Literal["wait", "raise"]


class Unsaid(Enum):
    """What stands for a setting that is not given."""

    ADDRESSES = f"${BROKER_VARIABLE}, else {BROKER_DEFAULT}"


AddressesGiven = str | Sequence[str] | Unsaid

FRAME_BYTES_TARGET: Final = 2 * limits.FRAME_PART_BYTES_MAX - 64
"""A frame is sealed before it passes this, to be sent in two gRPC messages; one larger message is alone in its frame.

Smaller frames would spare this process some copying (below 128 KiB glibc does not map memory anew for each buffer), and
cost it, the broker and the database more: with frames of 120 kB the whole took a third more CPU per message.
"""
BODY_ROOM_BYTES: Final = limits.BODY_BYTES_CEILING + limits.HEADERS_BYTES_MAX + 4_096
"""The most one encoded message may have: the largest body any topic can allow, and its names, keys and headers."""

_ADDRESSES_SHOWN_MAX: Final = 3
_NOT_IN_INSTANCE_ID: Final = re.compile(r"[^A-Za-z0-9_.:-]+")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How one MessageCenter behaves. Every wait and every buffer has its bound here."""

    addresses: tuple[str, ...]
    namespace: str = names.DEFAULT_NAMESPACE
    publisher_group: str = ""
    instance_id: str = ""
    host: str = ""
    unanswered_messages_max: int = 10_000
    """How many messages may be published and not answered yet; at the bound, publishing waits."""
    unanswered_bytes_max: int = 64 * 1024 * 1024
    on_unavailable: OnUnavailable = "wait"
    """`wait`: keep and resend what is unanswered. `raise`: fail it as soon as no broker, or no database, is there."""
    publish_timeout_seconds: float | None = 30.0
    """How long one publish may wait for its answer; None: for ever."""
    answer_timeout_seconds: float = 10.0
    """A broker that answers no frame for so long is left for the next one."""
    connect_timeout_seconds: float = 3.0
    backoff_initial_seconds: float = 0.05
    backoff_max_seconds: float = 2.0
    drain_timeout_seconds: float = 10.0
    """How long closing waits for running handlers and for unanswered messages."""
    credentials: Any = None
    """`grpc.ChannelCredentials` for TLS; None: plain text."""

    @property
    def addresses_text(self) -> str:
        """The addresses as an error shows them: the first ones, and how many more there are."""
        more = len(self.addresses) - _ADDRESSES_SHOWN_MAX
        return ", ".join(self.addresses[:_ADDRESSES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


class CenterSettings(TypedDict, total=False):
    """The keyword arguments of `MessageCenter`, which says what each does, and of the other centers."""

    namespace: str
    publisher_group: str
    instance_id: str | None
    unanswered_messages_max: int
    unanswered_bytes_max: int
    on_unavailable: OnUnavailable
    publish_timeout_seconds: float | None
    answer_timeout_seconds: float
    connect_timeout_seconds: float
    backoff_initial_seconds: float
    backoff_max_seconds: float
    drain_timeout_seconds: float
    credentials: grpc.ChannelCredentials | None


_SETTING_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "namespace": (str,),
    "publisher_group": (str,),
    "instance_id": (str, types.NoneType),
    "unanswered_messages_max": (int,),
    "unanswered_bytes_max": (int,),
    "on_unavailable": (str,),
    "publish_timeout_seconds": (float, int, types.NoneType),
    "answer_timeout_seconds": (float, int),
    "connect_timeout_seconds": (float, int),
    "backoff_initial_seconds": (float, int),
    "backoff_max_seconds": (float, int),
    "drain_timeout_seconds": (float, int),
    "credentials": (object,),
}


def make_config(addresses: AddressesGiven, settings: CenterSettings) -> ClientConfig:
    """Return the checked configuration, or raise InvalidSettingError or InvalidNameError."""
    if isinstance(addresses, Unsaid):
        listed = split_addresses(BROKER_VARIABLE, os.environ.get(BROKER_VARIABLE) or BROKER_DEFAULT)
    else:
        listed = split_addresses("addresses", addresses)
    host = safe_text(socket.gethostname(), limits.HOST_CHARS_MAX)
    check_options("MessageCenter", settings, _SETTING_TYPES)
    check_types(settings, _SETTING_TYPES)
    given: dict[str, Any] = {**settings, "instance_id": settings.get("instance_id") or default_instance_id(host)}
    config = ClientConfig(tuple(listed), host=host, **given)
    _check(config)
    return config


def default_instance_id(host: str) -> str:
    """Return a name for this process that no other one has: host, process id, some randomness."""
    readable = _NOT_IN_INSTANCE_ID.sub("-", host).lstrip("-.:")[:80] or "instance"
    return f"{readable}-{os.getpid()}-{secrets.token_hex(3)}"


def check_call_timeout(timeout_seconds: object) -> None:
    """Raise InvalidSettingError unless the time given for a single call is what a setting of the center may be."""
    check_types({"timeout_seconds": timeout_seconds}, {"timeout_seconds": (float, int)})
    _check_is_positive("timeout_seconds", timeout_seconds)


def _check(config: ClientConfig) -> None:
    names.check_namespace(config.namespace)
    names.check_instance_id(config.instance_id)
    if config.publisher_group:
        names.check_group(config.publisher_group)
    if not isinstance(config.credentials, (grpc.ChannelCredentials, types.NoneType)):
        # Not shown: it may be a secret.
        kind = type(config.credentials).__name__
        raise InvalidSettingError("credentials", f"is of type {kind}; grpc.ChannelCredentials or None is wanted")
    if config.on_unavailable not in {"wait", "raise"}:
        raise InvalidSettingError("on_unavailable", f"is {config.on_unavailable!r}; 'wait' or 'raise'")
    for name in ("unanswered_messages_max", "unanswered_bytes_max"):
        if getattr(config, name) < 1:
            raise InvalidSettingError(name, "must be at least 1")
    for name in (
        "answer_timeout_seconds",
        "connect_timeout_seconds",
        "backoff_initial_seconds",
        "backoff_max_seconds",
    ):
        _check_is_positive(name, getattr(config, name))
    if config.publish_timeout_seconds is not None and config.publish_timeout_seconds <= 0:
        raise InvalidSettingError("publish_timeout_seconds", "must be more than 0, or None")
    if config.drain_timeout_seconds < 0:
        raise InvalidSettingError("drain_timeout_seconds", "must not be negative")


def _check_is_positive(name: str, seconds: Any) -> None:
    if seconds <= 0:
        raise InvalidSettingError(name, "must be more than 0")
