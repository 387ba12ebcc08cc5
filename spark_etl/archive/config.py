"""What a job of the archive is given: where the store is, where the archive lies, and how it goes about its work."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Final

from msgbroker.contract.errors import InvalidSettingError
from msgbroker.contract.limits import RETENTION_DAYS_MAX
from msgdb.archive.noting import LEASE_SECONDS_MAX

_MIB: Final = 1024 * 1024
FILE_MIB_DEFAULT: Final = 256
_FILE_MIB_MIN: Final = 1
_FILE_MIB_MAX: Final = 4_096
_LEASE_SECONDS_MIN: Final = 1.0
_REPLAY_SECONDS_MAX: Final = 86_400.0
_GRACE_DAYS_MAX: Final = 3_660


def _this_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """How days are archived."""

    url: str = field(repr=False)
    """libpq's, of the message store's primary. A password in it is sent to Spark's executors and written nowhere."""
    place: str = field(repr=False)
    """The archive's root: a path, or one of `file:`, `s3:`, `hdfs:`, `gs:`, `abfs:`, as pyarrow reads them."""
    replica_url: str | None = field(default=None, repr=False)
    """Where messages are read instead, once it has what the primary had as the day was closed."""
    file_mib: int = FILE_MIB_DEFAULT
    """How many MiB of rows a file has, about, before they are compressed."""
    lease_seconds: float = 60.0
    """How long a job that died keeps its day from others."""
    replay_seconds_max: float = 300.0
    """How long a replica that lags is waited for."""
    grace_days: int = RETENTION_DAYS_MAX
    """For how many days the files of a run that another has replaced are kept."""
    holder: str = field(default_factory=_this_process)
    """Who does it, as others are told."""

    def __post_init__(self) -> None:
        """Refuse what is out of bounds."""
        for name, value, least, most in (
            ("file_mib", self.file_mib, _FILE_MIB_MIN, _FILE_MIB_MAX),
            ("lease_seconds", self.lease_seconds, _LEASE_SECONDS_MIN, LEASE_SECONDS_MAX),
            ("replay_seconds_max", self.replay_seconds_max, 0, _REPLAY_SECONDS_MAX),
            ("grace_days", self.grace_days, 0, _GRACE_DAYS_MAX),
        ):
            if not least <= value <= most:
                raise InvalidSettingError(name, f"must be {least:g} to {most:g}")

    @property
    def file_bytes(self) -> int:
        """How many bytes of rows a file has, about."""
        return self.file_mib * _MIB

    @property
    def read_url(self) -> str:
        """Where messages are read."""
        return self.replica_url or self.url
