"""Calls of one handler, and what becomes of their messages: returning settles one, and raising does in another way.

Each call runs in a context of its own (`contexts`), copied from the one in which the center was started; one of a
function that is not async runs in the thread that its worker has taken.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Any

from msgbroker.client.connect.background import OnFailure
from msgbroker.client.handle.contexts import begin, go_on
from msgbroker.client.handle.ending import Ending
from msgbroker.client.handle.handed import HandedMessage
from msgbroker.client.handle.handlers import Handler
from msgbroker.client.handle.message_logs import log_failure, log_rejection
from msgbroker.client.handle.threads import HandlerThreads
from msgbroker.client.handle.works import Work
from msgbroker.client.values.verdicts import RELEASED_AT_ONCE, HandlerVerdict, Verdict, VerdictKind, verdict_of


class HandlerCalls:
    """Makes the calls of one handler, for all its workers."""

    def __init__(self, handler: Handler, threads: HandlerThreads | None, ending: Ending, on_failure: OnFailure) -> None:
        """Make them; *threads*: where the handler is called, unless it is async."""
        self._handler = handler
        self._threads = threads
        self._ending = ending
        self._on_failure = on_failure
        self._context = contextvars.copy_context()
        """The context of whoever started the center: each call has a copy of it."""

    async def handle(self, work: Work, message: HandedMessage) -> None:
        """Call the handler and settle the message. It may leave the worker cancelled, even where it returned."""
        context = self._context.copy()
        try:
            outcome = await self._call(work, message, context)
        except asyncio.CancelledError:
            if self._ending.is_told:
                message.settle(RELEASED_AT_ONCE)
                raise
            # A failed attempt like any other.
            message.settle(Verdict(VerdictKind.RETRY, None, "CancelledError in the handler"))
        except HandlerVerdict as said:
            self._settle_as_said(message, said, context)
        except Exception as failure:  # noqa: BLE001 - the user's code: it may raise anything
            message.settle(verdict_of(failure))
            self._log_failure(message, failure, context)
        except BaseException as end:
            # SystemExit and the like are for the whole program. But the message may be what asks for it each time.
            message.settle(verdict_of(end))
            self._log_failure(message, end, context)
            if not self._on_failure(f"the handler of group {self._handler.group}", end) and _ends_the_loop(end):
                raise
        else:
            if outcome is None or not isinstance(outcome, HandlerVerdict):
                message.ack()
            else:
                self._settle_as_said(message, outcome, context)

    def _settle_as_said(self, message: HandedMessage, said: HandlerVerdict, context: contextvars.Context) -> None:
        verdict = verdict_of(said)
        message.settle(verdict)
        if verdict.kind is VerdictKind.REJECT:
            context.copy().run(log_rejection, self._handler.group, message, verdict)

    def _log_failure(self, message: HandedMessage, failure: BaseException, context: contextvars.Context) -> None:
        # For whoever logs what a handler has set there. A copy: a thread that is past its time may still be in it.
        context.copy().run(log_failure, self._handler.group, message, failure)

    async def _call(self, work: Work, message: HandedMessage, context: contextvars.Context) -> Any:
        handler = self._handler
        if self._threads is None:
            if handler.timeout_seconds is None:
                outcome = context.run(begin, handler.invoke, message)
                return outcome if outcome is None else await go_on(context, outcome)
            async with asyncio.timeout(handler.timeout_seconds):
                return await go_on(context, context.run(begin, handler.invoke, message))
        work.has_thread = False
        call = self._threads.call(functools.partial(self._invoke, context), message)
        # A thread cannot be stopped: past its time the message is tried again while the old call may still run.
        async with asyncio.timeout(handler.timeout_seconds):
            return await go_on(context, await call)

    def _invoke(self, context: contextvars.Context, message: HandedMessage) -> Any:
        """Call the handler in its thread."""
        try:
            return context.run(self._handler.invoke, message)
        except StopIteration as end:
            # No future can carry it: who waits would wait for ever.
            raise RuntimeError("the handler raised StopIteration") from end


def _ends_the_loop(end: BaseException) -> bool:
    """Return whether asyncio would end the loop by it, and should: not the one that works for a blocking center."""
    return isinstance(end, SystemExit | KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
