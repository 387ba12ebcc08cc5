"""Errors of the database's driver: outages, and mistakes."""

from __future__ import annotations

import psycopg
from psycopg import errors

OUTAGES = [
    psycopg.OperationalError,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.TooManyConnections,
    errors.QueryCanceled,
    errors.LockNotAvailable,
    errors.DeadlockDetected,
    errors.DiskFull,
    errors.OutOfMemory,
    errors.ConnectionFailure,
    errors.SerializationFailure,
    errors.IdleInTransactionSessionTimeout,
    errors.TransactionTimeout,
    errors.ReadOnlySqlTransaction,
]


MISTAKES = [
    errors.UndefinedTable,
    errors.UniqueViolation,
    errors.CheckViolation,
    errors.NumericValueOutOfRange,
    # An unreadable block, a file that is gone, a limit: the data's fault, or the statement's.
    errors.DataCorrupted,
    errors.IoError,
    errors.UndefinedFile,
    errors.ProgramLimitExceeded,
    errors.StatementTooComplex,
    errors.ObjectNotInPrerequisiteState,
]
