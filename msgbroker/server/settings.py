"""What a broker process is told from outside: read once, in `app`, from the environment."""

from __future__ import annotations

from typing import Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from msgbroker.contract import limits


class BrokerSettings(BaseSettings):
    """Settings of one broker process: environment variables `MSGCENTER_<NAME>`."""

    model_config = SettingsConfigDict(env_prefix="MSGCENTER_", extra="forbid", frozen=True)

    msgdb_url: SecretStr = Field(description="PostgreSQL URL of the message store.")
    confdb_url: SecretStr = Field(description="PostgreSQL URL of the configuration. May be the same database.")
    listen: str = Field("127.0.0.1:7400", description="host:port to serve gRPC on.")
    advertise: str = Field(
        "", description="host:port that clients and other brokers reach this one at. Default: where it listens."
    )
    shared_port: bool = Field(
        default=False,
        description="Share `listen` with other processes of this machine, and serve on a port of its own as well.",
    )
    client_registration: bool = Field(
        default=False,
        description="Let clients register topics, groups and subscriptions (register=True). For development.",
    )
    retention_days: int = Field(
        limits.RETENTION_DAYS_MAX,
        ge=1,
        le=limits.RETENTION_DAYS_MAX,
        description="Days that messages are kept. Lower saves disk; higher is not possible.",
    )
    frame_days: int = Field(
        limits.RETENTION_DAYS_MAX,
        ge=1,
        le=limits.RETENTION_DAYS_MAX,
        description="Days that is kept what became of publishers' frames. Not fewer than messages are kept, beside "
        "which a frame that comes once more would be stored again.",
    )
    dead_letter_days: int = Field(
        limits.DEAD_LETTER_DAYS_DEFAULT,
        ge=1,
        le=limits.DEAD_LETTER_DAYS_MAX,
        description="Days that dead letters are kept, from when they died.",
    )
    lease_seconds: float = Field(
        8.0,
        ge=3,
        le=limits.LEASE_SECONDS_MAX,
        description="How long the lanes of a broker that died stay with it. Lower costs more writes.",
    )
    checkpoint_seconds: float = Field(
        0.2, ge=0.02, le=5, description="How often progress is persisted: what a crash may deliver twice."
    )
    ingest_bytes_max: int = Field(
        32 * 1024 * 1024,
        ge=1024 * 1024,
        description="Bytes that may wait to be stored; above it publishers are slowed down.",
    )
    outgoing_bytes_max: int = Field(
        64 * 1024 * 1024,
        ge=8 * 1024 * 1024,
        description="Bytes that may wait for clients to read them; above half of it those that do not read are ended.",
    )
    publisher_streams_max: int = Field(
        1_000, ge=1, description="Publishers at a time; each may cost 0.8 MiB of memory. Others go to another broker."
    )
    subscriber_streams_max: int = Field(
        10_000, ge=1, description="Subscribers at a time; each may cost 0.8 MiB of memory. Others go to another broker."
    )
    calls_max: int = Field(
        2_000, ge=1, description="Unary calls at a time, but for pulls that wait; each may cost 100 KiB of memory."
    )
    pulls_max: int = Field(
        10_000,
        ge=1,
        description="Pulls at a time that wait for messages, beside other calls; each may cost 40 KiB of memory.",
    )
    log_cache_bytes_max: int = Field(
        48 * 1024 * 1024, ge=4 * 1024 * 1024, description="Bytes of messages kept in memory for delivery."
    )
    store_pool_size: int = Field(
        6, ge=3, le=50, description="Connections to the message store, beside a few of its own."
    )
    pooled: bool = Field(
        default=False,
        description="The databases are behind a transaction-pooling PgBouncer: no prepared statements, no LISTEN.",
    )
    expression_niceness: int = Field(
        19,
        ge=0,
        le=19,
        description="How much the process that evaluates slow expressions gives way to all others on the machine. "
        "Lower lets their groups go on where the machine is always busy, and costs the others latency.",
    )
    drain_seconds: float = Field(
        5.0, ge=0, le=60, description="How long SIGTERM waits for subscribers to settle what they hold."
    )
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="What is logged.")
    log_json: bool = Field(default=False, description="Log JSON lines, for machines.")

    @field_validator("listen", "advertise")
    @classmethod
    def _is_address(cls, address: str) -> str:
        host, _, port = address.rpartition(":")
        if address and (not host or not port.isdigit()):
            raise ValueError(f"{address!r} is not host:port")
        return address

    @field_validator("frame_days")
    @classmethod
    def _is_as_long_as_messages(cls, frame_days: int, info: ValidationInfo) -> int:
        retention_days = info.data.get("retention_days", 1)
        if frame_days < retention_days:
            raise ValueError(f"messages are kept for {retention_days} days, and these not for fewer")
        return frame_days

    @classmethod
    def load(cls, **overrides: object) -> Self:
        """Return the settings of the environment; *overrides* take precedence."""
        return cls(**overrides)  # type: ignore[arg-type]
