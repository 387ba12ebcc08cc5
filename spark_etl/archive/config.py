"""What a job of the archive is given: where the store is, where the archive lies, and how it goes about its work."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Final

from msgbroker.contract.errors import InvalidSettingError
from msgbroker.contract.limits import RETENTION_DAYS_MAX

_MIB: Final = 1024 * 1024
FILE_MIB_DEFAULT: Final = 256
_FILE_MIB_MIN: Final = 1
_FILE_MIB_MAX: Final = 4_096


def _this_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """How days are archived."""

    url: str = field(repr=False)
    """libpq's, of the message store's primary. A password in it is sent to Spark's executors and written nowhere."""
    place: str
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
        if not _FILE_MIB_MIN <= self.file_mib <= _FILE_MIB_MAX:
            raise InvalidSettingError("file_mib", f"must be {_FILE_MIB_MIN} to {_FILE_MIB_MAX}")
        if not 1 <= self.lease_seconds <= 3_600:
            raise InvalidSettingError("lease_seconds", "must be 1 to 3600")

    @property
    def file_bytes(self) -> int:
        """How many bytes of rows a file has, about."""
        return self.file_mib * _MIB

    @property
    def read_url(self) -> str:
        """Where messages are read."""
        return self.replica_url or self.url
