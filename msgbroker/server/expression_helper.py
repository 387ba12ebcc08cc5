"""The helper process of a broker: evaluates expressions that are too dear for the broker's event loop.

A program of its own, started by `helper_process`, at the other end of the socket that is its standard input. It ends
when that closes, whatever became of the broker. In the middle of an evaluation, which nothing else can interrupt, the
system ends it: when the socket closes, and where a request takes more CPU time or memory than it may. It takes a low
priority and sleeps as long as it worked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from confdb.expressions import ExpressionFailedError, compile_expression
from confdb.routes import HeaderPredicate
from msgbroker.contract.errors import InvalidExpressionError
from msgbroker.server.helper_frames import HEAD, Answer, HelperBounds, Question, Request, frame, length_of

OUT_OF_MEMORY: Final = 77
"""Its exit status where an evaluation took more memory than it may."""

_MATCH, _NO_MATCH, _FAILED = 1, 0, -1


def main() -> None:
    """Answer requests until the socket closes."""
    bounds = HelperBounds(**orjson.loads(sys.argv[1]))
    _take_little(bounds)
    with socket.socket(fileno=0) as connection:
        fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
        connection.sendall(frame("ready"))
        while (content := _receive(connection)) is not None:
            # The thread's time: while a timer runs, the system counts that of the process in whole ticks.
            started_at = time.thread_time()
            with _interruptible(connection, bounds.cpu_seconds_max):
                answer = answer_to(Request.decode(content))
            connection.sendall(answer.encode())
            _rest(connection, time.thread_time() - started_at)


@contextlib.contextmanager
def _interruptible(connection: socket.socket, cpu_seconds_max: float) -> Iterator[None]:
    """Let the system end this process, if what is done inside takes too long, or the broker goes.

    The broker says nothing until it has its answer: whatever happens to the socket meanwhile is its end.
    """
    flags = fcntl.fcntl(connection, fcntl.F_GETFL)
    fcntl.fcntl(connection, fcntl.F_SETFL, flags | os.O_ASYNC)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds_max)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        fcntl.fcntl(connection, fcntl.F_SETFL, flags)


def answer_to(request: Request) -> Answer:
    """Answer the questions of *request* from the first on, as far as its time goes."""
    predicates = [_predicate(text) for text in request.expressions]
    outcomes: list[tuple[int, ...]] = []
    evaluations = 0
    started_at = time.thread_time()
    seconds = 0.0
    for question in request.questions:
        outcomes.append(_outcomes(question, predicates))
        evaluations += len(outcomes[-1])
        seconds = time.thread_time() - started_at
        if seconds >= request.seconds:
            break
    return Answer(tuple(outcomes), seconds, evaluations)


def _outcomes(question: Question, predicates: list[HeaderPredicate | None]) -> tuple[int, ...]:
    outcomes: list[int] = []
    for number in question.expressions:
        outcomes.append(_outcome(predicates[number], question.headers))
        if outcomes[-1] == _MATCH:
            break
    return tuple(outcomes)


def _outcome(predicate: HeaderPredicate | None, headers: dict[str, str]) -> int:
    if predicate is None:
        return _FAILED
    try:
        return _MATCH if predicate(headers) is True else _NO_MATCH
    except ExpressionFailedError:
        return _FAILED
    except MemoryError:
        # Not an answer: nobody knows what the expression says of this message.
        os._exit(OUT_OF_MEMORY)


def _predicate(text: str) -> HeaderPredicate | None:
    try:
        return compile_expression(text)
    except InvalidExpressionError:
        # It is not evaluated by the broker either.
        return None


def _take_little(bounds: HelperBounds) -> None:
    """Give way to all others, and take no more than may be taken."""
    # The broker ends it, by closing the socket: whoever tells a whole group of processes to stop means the broker.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGPROF, signal.SIGIO):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF, signal.SIGIO])
    os.nice(bounds.niceness)
    # Where the system weighs sessions and not processes, a nice value counts only within its own session.
    _write("/proc/self/autogroup", str(bounds.niceness))
    # When memory runs out, it is the first to go.
    _write("/proc/self/oom_score_adj", "1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (bounds.memory_bytes_max, bounds.memory_bytes_max))


def _write(path: str, text: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).write_text(text)


def _receive(connection: socket.socket) -> bytes | None:
    """Return the content of the next frame, or None: there is no broker any more."""
    head = _receive_exactly(connection, HEAD.size)
    return None if head is None else _receive_exactly(connection, length_of(head))


def _receive_exactly(connection: socket.socket, count: int) -> bytes | None:
    received = bytearray()
    while len(received) < count:
        more = connection.recv(count - len(received))
        if not more:
            return None
        received += more
    return bytes(received)


def _rest(connection: socket.socket, seconds: float) -> None:
    """Do nothing for *seconds*; end at once where the broker has."""
    closed = select.poll()
    closed.register(connection, select.POLLRDHUP)
    closed.poll(seconds * 1_000)


if __name__ == "__main__":
    # The broker is gone: nobody is there to be told.
    with contextlib.suppress(ConnectionError, KeyboardInterrupt):
        main()
