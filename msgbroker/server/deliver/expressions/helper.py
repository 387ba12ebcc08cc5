"""The helper process of a broker: evaluates expressions that are too dear for the broker's event loop.

A program of its own, started by `helper_process`, at the other end of the socket that is its standard input. Nothing
can interrupt an evaluation but the system, which ends the process: where a request takes more CPU time or memory than
it may, and when the broker goes, however it goes. It takes a low priority and sleeps as long as it worked.
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
from pathlib import Path
from typing import Final

import orjson

from confdb.expressions.compiled import ExpressionFailedError, compile_expression
from confdb.routes import HeaderPredicate
from msgbroker.contract.errors import InvalidExpressionError
from msgbroker.engine.matching import Outcome
from msgbroker.server.deliver.expressions.helper_frames import (
    HEAD,
    PROBLEM_CHARS_MAX,
    Answer,
    HelperBounds,
    Question,
    Request,
    frame,
    length_of,
)

OUT_OF_MEMORY: Final = 77
"""The process's exit status where an evaluation took more memory than it may."""


def main() -> None:
    """Answer the broker's requests until it is gone."""
    bounds = HelperBounds(**orjson.loads(sys.argv[1]))
    _take_little(bounds)
    _end_with(int(sys.argv[2]))
    with socket.socket(fileno=0) as connection:
        connection.sendall(frame("ready"))
        while (content := _receive(connection)) is not None:
            # The thread's time: while a timer runs, the system counts that of the process in whole ticks.
            started_at = time.thread_time()
            signal.setitimer(signal.ITIMER_PROF, bounds.cpu_seconds_max)
            answer = answer_to(Request.decode(content))
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            connection.sendall(answer.encode())
            time.sleep(time.thread_time() - started_at)


def answer_to(request: Request) -> Answer:
    """Answer the questions of *request* from the first on, as far as its time goes."""
    predicates = [_predicate(text) for text in request.expressions]
    problems = ["" if predicate else "it does not compile here" for predicate in predicates]
    outcomes: list[tuple[int, ...]] = []
    evaluations = 0
    started_at = time.thread_time()
    seconds = longest_seconds = 0.0
    for question in request.questions:
        outcomes.append(_outcomes(question, predicates, problems))
        evaluations += len(outcomes[-1])
        seconds_before, seconds = seconds, time.thread_time() - started_at
        longest_seconds = max(longest_seconds, seconds - seconds_before)
        if seconds >= request.seconds:
            break
    return Answer(tuple(outcomes), seconds, evaluations, longest_seconds, tuple(problems))


def _outcomes(question: Question, predicates: list[HeaderPredicate | None], problems: list[str]) -> tuple[int, ...]:
    outcomes: list[int] = []
    for number in question.expressions:
        try:
            outcomes.append(_outcome(predicates[number], question.headers))
        except ExpressionFailedError as error:
            outcomes.append(Outcome.FAILED)
            problems[number] = error.problem[:PROBLEM_CHARS_MAX]
        if outcomes[-1] == Outcome.MATCH:
            break
    return tuple(outcomes)


def _outcome(predicate: HeaderPredicate | None, headers: dict[str, str]) -> int:
    if predicate is None:
        return Outcome.FAILED
    try:
        return Outcome.MATCH if predicate(headers) is True else Outcome.NO_MATCH
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


def _end_with(lifeline: int) -> None:
    """Let the system end this process when the other end of the pipe *lifeline* closes.

    Nothing is ever written to it, so nothing else can happen to it. The socket would not do: it has news whenever the
    broker reads or writes.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    closed = select.poll()
    closed.register(lifeline, select.POLLHUP)
    if closed.poll(0):
        # Before.
        sys.exit()


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


if __name__ == "__main__":
    # The broker is gone: nobody is there to be told.
    with contextlib.suppress(ConnectionError, KeyboardInterrupt):
        main()
