"""The configuration's tables (SQLAlchemy ORM). `migrations/confdb` makes them; a test proves both equal.

Ids are never reused: a group deleted and created again is another group, and the message store, which refers to
these ids, can tell. Every constraint has a name by the convention below, so that a violation can be translated by it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

CONFIG_CHANNEL: Final = "msgcenter_config"
"""NOTIFY goes out here, in the transaction of every change."""

# Bounds on what a dead tuple costs: updated in place, every second.
_UPDATED_IN_PLACE = {
    "postgresql_with": {
        "fillfactor": "50",
        "autovacuum_vacuum_threshold": "500",
        "autovacuum_vacuum_scale_factor": "0.02",
        "vacuum_truncate": "off",
    }
}


class Base(DeclarativeBase):
    """The base of confdb's tables; its `metadata` is all of them."""

    metadata = MetaData(
        naming_convention={
            "pk": "%(table_name)s_pkey",
            "ix": "%(table_name)s_%(column_0_N_name)s_idx",
            "uq": "%(table_name)s_%(column_0_N_name)s_key",
            "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
            "ck": "%(table_name)s_%(constraint_name)s_check",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads a plain class attribute
        str: Text,
        int: BigInteger,
        bool: Boolean,
        float: Double,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        UUID: Uuid,
    }


def _identity() -> Mapped[int]:
    return mapped_column(Identity(always=True), primary_key=True)


def _now() -> Mapped[datetime]:
    return mapped_column(server_default=func.now())


def _requires() -> Mapped[list[str]]:
    # The features (`confdb.features`) a broker must understand to serve the row.
    return mapped_column(ARRAY(Text), server_default=text("'{}'"))


class Namespace(Base):
    """A tenant. `default` exists from the start."""

    __tablename__ = "namespace"
    __table_args__ = (UniqueConstraint("name"),)

    namespace_id: Mapped[int] = _identity()
    name: Mapped[str]
    description: Mapped[str] = mapped_column(server_default="")
    created_at: Mapped[datetime] = _now()


class Topic(Base):
    """A business; its event codes are its kinds of events."""

    __tablename__ = "topic"
    __table_args__ = (
        UniqueConstraint("namespace_id", "name"),
        CheckConstraint("kind IN ('NORMAL', 'ORDERED', 'SCHEDULED', 'TRANSACTIONAL')", name="kind"),
        CheckConstraint("queue_count > 0", name="queue_count"),
        CheckConstraint("trace_rate >= 0 AND trace_rate <= 1", name="trace_rate"),
    )

    topic_id: Mapped[int] = _identity()
    namespace_id: Mapped[int] = mapped_column(ForeignKey("namespace.namespace_id"))
    name: Mapped[str]
    kind: Mapped[str] = mapped_column(server_default="NORMAL")
    queue_count: Mapped[int] = mapped_column(Integer)
    # Of the queue layout: goes up with queue_count, never down.
    generation: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    body_bytes_max: Mapped[int] = mapped_column(Integer)
    is_open: Mapped[bool] = mapped_column(server_default=text("false"))
    is_closed: Mapped[bool] = mapped_column(server_default=text("false"))
    stress_refused: Mapped[bool] = mapped_column(server_default=text("false"))
    description: Mapped[str] = mapped_column(server_default="")
    created_at: Mapped[datetime] = _now()
    requires: Mapped[list[str]] = _requires()
    # The share of its messages of which all that happens is traced; of the others, what fails.
    trace_rate: Mapped[float] = mapped_column(Double, server_default=text("0.01"))


class EventCode(Base):
    """A kind of event inside a topic."""

    __tablename__ = "event_code"

    topic_id: Mapped[int] = mapped_column(ForeignKey("topic.topic_id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[datetime] = _now()


class PublisherGroup(Base):
    """Applications that share publishing logic."""

    __tablename__ = "publisher_group"
    __table_args__ = (UniqueConstraint("namespace_id", "name"),)

    publisher_group_id: Mapped[int] = _identity()
    namespace_id: Mapped[int] = mapped_column(ForeignKey("namespace.namespace_id"))
    name: Mapped[str]
    description: Mapped[str] = mapped_column(server_default="")
    created_at: Mapped[datetime] = _now()


class SubscriberGroup(Base):
    """Applications that share the handling of messages, and how they want their messages."""

    __tablename__ = "subscriber_group"
    __table_args__ = (
        UniqueConstraint("namespace_id", "name"),
        CheckConstraint("group_order IN ('NONE', 'KEY', 'GLOBAL')", name="group_order"),
        CheckConstraint("mode IN ('SHARED', 'BROADCAST')", name="mode"),
        CheckConstraint("attempts_max > 0", name="attempts_max"),
    )

    group_id: Mapped[int] = _identity()
    namespace_id: Mapped[int] = mapped_column(ForeignKey("namespace.namespace_id"))
    name: Mapped[str]
    ack_timeout_seconds: Mapped[float]
    retry_schedule_seconds: Mapped[list[float]] = mapped_column(ARRAY(Double))
    attempts_max: Mapped[int] = mapped_column(Integer)
    unsettled_max: Mapped[int] = mapped_column(Integer)
    # `order` is a word of SQL.
    group_order: Mapped[str] = mapped_column(server_default="NONE")
    mode: Mapped[str] = mapped_column(server_default="SHARED")
    paused: Mapped[bool] = mapped_column(server_default=text("false"))
    description: Mapped[str] = mapped_column(server_default="")
    created_at: Mapped[datetime] = _now()
    requires: Mapped[list[str]] = _requires()
    handle_seconds_max: Mapped[float] = mapped_column(server_default=text("3600"))


class Subscription(Base):
    """Says that a subscriber group wants a message type."""

    __tablename__ = "subscription"
    __table_args__ = (
        UniqueConstraint("group_id", "topic_id", "event_code"),
        CheckConstraint("mode IN ('DIRECT', 'HEADER')", name="mode"),
        CheckConstraint("(mode = 'HEADER') = (expression IS NOT NULL)", name="expression"),
        # Deleting a topic asks whether one is left.
        Index(None, "topic_id"),
    )

    subscription_id: Mapped[int] = _identity()
    group_id: Mapped[int] = mapped_column(ForeignKey("subscriber_group.group_id"))
    topic_id: Mapped[int] = mapped_column(ForeignKey("topic.topic_id"))
    # No foreign key: `*` is every code, and an open topic's codes come later.
    event_code: Mapped[str]
    mode: Mapped[str] = mapped_column(server_default="DIRECT")
    expression: Mapped[str | None]
    # {queue_id: next offset when it was registered}; a queue that is not named is younger, and starts at 0.
    start_offsets: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    created_at: Mapped[datetime] = _now()
    requires: Mapped[list[str]] = _requires()
    # What it wants, and no other, waits until it goes on.
    paused: Mapped[bool] = mapped_column(server_default=text("false"))


class StressRule(Base):
    """Marks a message as stress traffic when a header matches."""

    __tablename__ = "stress_rule"
    __table_args__ = (
        UniqueConstraint("namespace_id", "header", "operator", "value"),
        CheckConstraint("operator IN ('EQUALS', 'PREFIX', 'EXISTS')", name="operator"),
    )

    stress_rule_id: Mapped[int] = _identity()
    namespace_id: Mapped[int] = mapped_column(ForeignKey("namespace.namespace_id"))
    header: Mapped[str]
    operator: Mapped[str]
    value: Mapped[str] = mapped_column(server_default="")
    created_at: Mapped[datetime] = _now()


class StressWhitelist(Base):
    """Says that a subscriber group may be handed stress messages of a message type."""

    __tablename__ = "stress_whitelist"
    __table_args__ = (UniqueConstraint("group_id", "topic_id", "event_code"), Index(None, "topic_id"))

    stress_whitelist_id: Mapped[int] = _identity()
    group_id: Mapped[int] = mapped_column(ForeignKey("subscriber_group.group_id"))
    topic_id: Mapped[int] = mapped_column(ForeignKey("topic.topic_id"))
    # No foreign key: see Subscription.event_code.
    event_code: Mapped[str]
    created_at: Mapped[datetime] = _now()


class Broker(Base):
    """A broker process that is, or was until lately, alive. Written by its own heartbeat only."""

    __tablename__ = "broker"
    # No index beside the key: heartbeat_at changes all the time, and the rows are few.
    __table_args__ = (_UPDATED_IN_PLACE,)

    broker_id: Mapped[UUID] = mapped_column(primary_key=True)
    address: Mapped[str]
    host: Mapped[str]
    pid: Mapped[int] = mapped_column(Integer)
    process_version: Mapped[str] = mapped_column(server_default="")
    started_at: Mapped[datetime] = _now()
    # By this database's clock, like whoever compares it.
    heartbeat_at: Mapped[datetime] = _now()
    snapshot_version: Mapped[int]
    draining: Mapped[bool] = mapped_column(server_default=text("false"))
    # {group_id: connected instances}
    groups: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    # Those of `confdb.features` that it understands.
    features: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))
    # {group_id: [topic_id]} of its groups: what it serves nothing of, whatever its features.
    withheld: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))


class AuditEntry(Base):
    """One change: who, what, before and after. Written in the transaction of the change, never changed."""

    __tablename__ = "audit_entry"
    # The history of one thing, newest first; and that of a namespace, without reading what others changed.
    __table_args__ = (
        Index(None, "kind", "namespace", "name", "audit_id"),
        Index(None, "namespace", "audit_id"),
    )

    audit_id: Mapped[int] = _identity()
    at: Mapped[datetime] = _now()
    actor: Mapped[str]
    action: Mapped[str]
    kind: Mapped[str]
    namespace: Mapped[str]
    name: Mapped[str]
    # SQL NULL where there is none: before of a creation, after of a deletion.
    before: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    after: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    config_version: Mapped[int]
    # Empty where nobody said why.
    reason: Mapped[str] = mapped_column(server_default="")


class ConfigVersion(Base):
    """The version of the whole configuration, in one row. Its row lock puts all changes in one order."""

    __tablename__ = "config_version"
    __table_args__ = (CheckConstraint("singleton = 1", name="singleton"),)

    singleton: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    version: Mapped[int]
    changed_at: Mapped[datetime] = _now()
    # The cluster and its timeline that the version was made on. After a promotion versions skip.
    timeline: Mapped[str | None]
