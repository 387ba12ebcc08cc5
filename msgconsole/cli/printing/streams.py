"""The standard streams: all that a command prints is written here, and what keeps it from being written is told apart.

- What the encoding of standard output does not have is written as backslash escapes: nobody's text fails a command.
- A reader may go (`| head`): what follows goes nowhere, the command does its work, and its status says what was done.
- Whatever else keeps output from being written (a full disk, a terminal that is gone) is an `OutputFailedError`.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Final

from msgbroker.contract.errors import OutputFailedError

_STDERR: Final = 2


def prepare() -> None:
    """Make the streams fit for a command. Raises OutputFailedError where it could print to nobody."""
    _fill_closed_descriptors()
    if sys.stdout is None:
        raise OutputFailedError("is closed: redirect it to /dev/null if nobody is to read it")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_text(text: str) -> None:
    """Write *text* at once, or nowhere once the reader has gone. Raises OutputFailedError."""
    try:
        write(text)
    except BrokenPipeError:
        drop_output()


def write(text: str) -> None:
    """Write *text* at once. Raises BrokenPipeError where the reader has gone, OutputFailedError for all else."""
    try:
        if (raw := _unbuffered()) is not None:
            _write_whole(raw, text.encode(sys.stdout.encoding, sys.stdout.errors or "strict"))
        else:
            sys.stdout.write(text)
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise OutputFailedError(f"cannot be written: {error.strerror}") from error


def print_bytes(content: bytes) -> None:
    """Write *content* as it is, or nowhere once the reader has gone. Raises OutputFailedError."""
    sys.stdout.flush()
    try:
        if (raw := _unbuffered()) is not None:
            _write_whole(raw, content)
        else:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        drop_output()
    except OSError as error:
        drop_output()
        raise OutputFailedError(f"cannot be written: {error.strerror}") from error


def drop_output() -> None:
    """Let what is printed from now on go nowhere.

    What was not written would be tried once more at exit, and fail there with a traceback.
    """
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:
        # No file, but memory: nothing is tried again.
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def takes_all_characters() -> bool:
    """Return whether the encoding of standard output has every character."""
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


def _unbuffered() -> io.RawIOBase | None:
    """Return what is below standard output where Python does not buffer it (PYTHONUNBUFFERED), else None."""
    below = getattr(sys.stdout, "buffer", None)
    return below if isinstance(below, io.RawIOBase) else None


def _write_whole(raw: io.RawIOBase, content: bytes) -> None:
    # A signal in the middle of a write ends it early, and Python's text layer does not look at how much was written.
    left = memoryview(content)
    while left:
        left = left[raw.write(left) or 0 :]


def _fill_closed_descriptors() -> None:
    # Whatever is opened next would take the number, and get what libraries write to standard error.
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= _STDERR:
        descriptor = os.dup(descriptor)
    os.close(descriptor)
