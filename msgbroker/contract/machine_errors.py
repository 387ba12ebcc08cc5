"""Errors of one machine: what a command, or a PostgreSQL of one's own, cannot start, reach, use or print here.

They are for whoever typed the command, who has to put something right first: none is retryable. None ever goes over the
wire. Their families are those of the rest, so that whoever catches a family catches these as well.
"""

from __future__ import annotations

from msgbroker.contract.error_families import FailedPreconditionError, NotFoundError, UnavailableError
from msgbroker.contract.facts import Fact


class NoDatabaseError(FailedPreconditionError):
    """No option, no variable and no running `msgcenter up` says where the databases are."""

    reason = "NO_DATABASE"
    variable = Fact(str, "")

    def __init__(self, variable: str, problem: str | None = None) -> None:
        way_on = problem or "start `msgcenter up` in this directory or above it"
        super().__init__(f"no database: {way_on}, or set {variable}", variable=variable)


class DatabaseRefusedError(FailedPreconditionError):
    """A database answers, and refuses what was asked of it: permissions, encoding, another kind of server."""

    reason = "DATABASE_REFUSED"
    database = Fact(str, "")

    def __init__(self, database: str, problem: str) -> None:
        super().__init__(f"{database} refuses: {problem}", database=database)


class SchemaNotKnownError(FailedPreconditionError):
    """A database was migrated by a version that this one does not know."""

    reason = "SCHEMA_NOT_KNOWN"
    database = Fact(str, "")

    def __init__(self, database: str, problem: str) -> None:
        super().__init__(
            f"{database} was migrated by another, probably newer, version of msgcenter: use that one ({problem})",
            database=database,
        )


class EmbeddedPostgresError(UnavailableError):
    """The embedded PostgreSQL cannot be started or stopped."""

    reason = "EMBEDDED_POSTGRES"
    retryable = False


class AlreadyUpError(FailedPreconditionError):
    """Another `msgcenter up` runs in this directory."""

    reason = "ALREADY_UP"
    pid = Fact(str, "")

    def __init__(self, directory: str, pid: str) -> None:
        super().__init__(
            f"`msgcenter up` runs already with {directory} (process {pid}): use it, or stop it with `kill {pid}`",
            pid=pid,
        )


class BrokerFailedError(UnavailableError):
    """A broker process ended, or never began to serve."""

    reason = "BROKER_FAILED"
    retryable = False


class PortBusyError(UnavailableError):
    """Another program listens on the port already."""

    reason = "PORT_BUSY"
    retryable = False
    address = Fact(str, "")

    def __init__(self, address: str) -> None:
        super().__init__(
            f"{address} is in use by another program: stop it, or choose another address with --listen", address=address
        )


class CannotListenError(UnavailableError):
    """Nobody can listen there: no address of this machine, or a port that takes more rights."""

    reason = "CANNOT_LISTEN"
    retryable = False
    address = Fact(str, "")

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(f"{address} cannot be listened at ({problem}): choose another address", address=address)


class OutputFailedError(UnavailableError):
    """Standard output is closed, or takes nothing any more: the disk is full, say."""

    reason = "OUTPUT_FAILED"
    retryable = False

    def __init__(self, problem: str) -> None:
        super().__init__(f"standard output {problem}")


class BenchFailedError(UnavailableError):
    """A phase of a benchmark did not do what it had to, so its numbers would mean nothing."""

    reason = "BENCH_FAILED"
    retryable = False


class ChartNotPossibleError(FailedPreconditionError):
    """The library that draws the charts of benchmark reports is not installed."""

    reason = "CHART_NOT_POSSIBLE"


class SparkMissingError(FailedPreconditionError):
    """What the archive's jobs need is not installed."""

    reason = "SPARK_MISSING"

    def __init__(self) -> None:
        super().__init__("the archive's jobs need more: pip install 'msgcenter[spark]'")


class JavaMissingError(FailedPreconditionError):
    """Spark runs on Java, and there is none here."""

    reason = "JAVA_MISSING"

    def __init__(self) -> None:
        super().__init__("Spark needs Java 17 or 21: install the package openjdk-17-jre-headless, or set JAVA_HOME")


class ArchivePlaceError(FailedPreconditionError):
    """The archive's root names no place, or cannot be written there."""

    reason = "ARCHIVE_PLACE"
    place = Fact(str, "")

    def __init__(self, place: str, problem: str) -> None:
        where = f" at {place!r}" if place else ""
        super().__init__(f"no archive{where}: {problem}", place=place)


class ManifestUnreadableError(FailedPreconditionError):
    """A manifest is damaged, or of a version that is not read here."""

    reason = "MANIFEST_UNREADABLE"
    path = Fact(str, "")

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"the manifest {path} cannot be read: {problem}", path=path)


class ArchiveDiffersError(FailedPreconditionError):
    """What was written is not what the store has, or not what its manifest says."""

    reason = "ARCHIVE_DIFFERS"

    def __init__(self, problem: str) -> None:
        super().__init__(f"the archive differs: {problem}")


class JobFailedError(FailedPreconditionError):
    """A job of Spark's failed: a task was refused something, ran out of it, or met what nobody foresaw."""

    reason = "JOB_FAILED"

    def __init__(self, problem: str) -> None:
        super().__init__(f"the job failed: {problem}")


class DayNotFoundError(NotFoundError):
    """The archive does not have the day, or any of the days."""

    reason = "DAY_NOT_FOUND"
    table = Fact(str, "")
    day = Fact(str, "")

    def __init__(self, table: str, day: str, place: str) -> None:
        super().__init__(f"{table} of {day} is not archived below {place}", table=table, day=day)
