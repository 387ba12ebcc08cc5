"""What a task raised, without the pages that Spark puts around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from msgbroker.contract import errors
from msgbroker.contract.errors import JobFailedError, MessageCenterError

# The last line of a traceback of Python's.
_RAISED: Final = re.compile(r"^\s*([\w.]+(?:Error|Exception|Exit|Interrupt)): (.*)$", re.MULTILINE)
_CHARS_MAX: Final = 500


@contextmanager
def task_errors() -> Iterator[None]:
    """Raise what a task of a job in this block raised, where it was one of ours, and JobFailedError otherwise."""
    try:
        yield
    except Py4JJavaError as error:
        # What PySpark has no name for: that a job was cancelled, or its executors died.
        raise _told(str(error.java_exception.toString())) from error
    except (PySparkException, Py4JError) as error:
        raise _told(str(error)) from error


def _told(said: str) -> MessageCenterError:
    raised = _RAISED.findall(said)
    if not raised:
        first, *_ = said.strip().splitlines() or ["Spark does not say why"]
        return JobFailedError(first[:_CHARS_MAX])
    name, message = raised[-1]
    kind = getattr(errors, name.rpartition(".")[2], None)
    if isinstance(kind, type) and issubclass(kind, MessageCenterError):
        return errors.from_wire(kind.reason, kind.status, message, {})
    return JobFailedError(f"{name}: {message}"[:_CHARS_MAX])
