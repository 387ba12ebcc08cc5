"""The example client as the conformance suite wants a client: what is said here is said to a Node process.

Node does all that has to do with a broker. Here is what an SDK offers beside that: handlers, their bodies by
annotation, and what they raise as verdicts.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import itertools
import json
import logging
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Self, get_origin, get_type_hints
from uuid import UUID

from msgbroker.client import Message
from msgbroker.client.values.bodies import Body
from msgbroker.client.values.verdicts import UnreadableBody, verdict_of
from msgbroker.contract.errors import from_wire
from tests.polyglot.node import HERE, NODE

log = logging.getLogger("msgbroker.client")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_UNANSWERED_MAX: Final = 5_000
_CLOSE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class NodeReceipt:
    """Proof that a message is stored."""

    message_id: UUID
    queue_id: int
    queue_offset: int
    stored_at: datetime
    duplicate: bool


@dataclass(frozen=True, slots=True)
class NodeMessage:
    """A message as a handler gets it."""

    topic: str
    event_code: str
    body: bytes
    headers: Mapping[str, str]
    key: str
    ordering_key: str
    message_id: UUID
    queue_id: int
    queue_offset: int
    stored_at: datetime
    attempt: int
    stress: bool
    born_host: str
    keep: Callable[[float], bool]

    def extend(self, seconds: float) -> bool:
        """Keep the message for so long; return whether it is still this instance's."""
        return self.keep(seconds)


@dataclass(frozen=True, slots=True)
class _Handler:
    function: Callable[..., Any]
    topic: str
    event_code: str

    async def call(self, message: NodeMessage) -> None:
        """Call the function with what its parameters are annotated with; one that is not async in a thread."""
        kinds = get_type_hints(self.function)
        arguments = [
            _argument(kinds.get(name, Message), message) for name in inspect.signature(self.function).parameters
        ]
        if inspect.iscoroutinefunction(self.function):
            await self.function(*arguments)
        else:
            await asyncio.to_thread(self.function, *arguments)


class NodeCenter:
    """A MessageCenter, as far as the suite of deliveries uses one."""

    def __init__(self, address: str, **settings: Any) -> None:
        self._settings = {"addresses": [address], **settings}
        self._handlers: list[_Handler] = []
        self._groups: dict[str, list[int]] = {}
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._publishing: set[asyncio.Future[Any]] = set()
        self._handling: dict[int, asyncio.Task[None]] = {}
        self._is_killed = False

    async def __aenter__(self) -> Self:
        arguments = (NODE, HERE / "bridge.mjs", json.dumps(self._settings))
        self._process: Process = await asyncio.create_subprocess_exec(
            *arguments, stdin=PIPE, stdout=PIPE, limit=_LINE_BYTES_MAX
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                if not self._is_killed:
                    await self.ask("close")
        finally:
            self.kill()
            await self._process.wait()
            await self._reading
            for task in self._handling.values():
                task.cancel()

    def kill(self) -> None:
        """End the Node process as a power cut would."""
        if self._process.returncode is None:
            self._process.kill()
        self._is_killed = True

    # --- publishing ---------------------------------------------------------------------------------------------

    async def publish(self, topic: str, event_code: str, body: Body = b"", **more: Any) -> NodeReceipt:
        """Publish a message and wait until it is stored."""
        return await self.publish_soon(topic, event_code, body, **more)

    def publish_soon(
        self,
        topic: str,
        event_code: str,
        body: Body = b"",
        *,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        ordering_key: str = "",
    ) -> asyncio.Future[NodeReceipt]:
        """Publish a message without waiting."""
        message = {
            "topic": topic,
            "eventCode": event_code,
            "body": base64.b64encode(_encoded(body)).decode(),
            "headers": dict(headers or {}),
            "key": key,
            "orderingKey": ordering_key,
        }
        publishing = asyncio.ensure_future(self._publish(self.ask("publish", message=message)))
        self._publishing.add(publishing)
        publishing.add_done_callback(self._publishing.discard)
        return publishing

    async def ready(self) -> None:
        """Wait until there is room for another message."""
        while len(self._publishing) >= _UNANSWERED_MAX:
            await asyncio.wait(self._publishing, return_when=asyncio.FIRST_COMPLETED)

    async def flush(self) -> None:
        """Wait until everything published so far has been answered."""
        if self._publishing:
            await asyncio.wait(set(self._publishing))

    async def _publish(self, answer: asyncio.Future[Any]) -> NodeReceipt:
        receipt = await answer
        return NodeReceipt(
            UUID(hex=receipt["messageId"]),
            int(receipt["queueId"]),
            int(receipt["queueOffset"]),
            _time_of(receipt["storedAtUs"]),
            receipt["duplicate"],
        )

    # --- subscribing --------------------------------------------------------------------------------------------

    def subscriber(
        self, *, group: str, topic: str, event_code: str = "*"
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Make the decorated function the handler of a message type in a subscriber group."""

        def attach(function: Callable[..., Any]) -> Callable[..., Any]:
            self._groups.setdefault(group, []).append(len(self._handlers))
            self._handlers.append(_Handler(function, topic, event_code))
            return function

        return attach

    async def start(self) -> None:
        """Connect the subscribers, and return once each group has been attached by a broker."""
        for group, indexes in self._groups.items():
            handled = [(index, self._handlers[index]) for index in indexes]
            handlers = [{"index": i, "topic": each.topic, "eventCode": each.event_code} for i, each in handled]
            await self.ask("subscribe", group=group, handlers=handlers)

    async def _handle(self, handler: _Handler, number: int, said: Mapping[str, Any]) -> None:
        verdict = None
        try:
            await handler.call(_message_of(said, partial(self._extend, number)))
        except Exception as failure:  # noqa: BLE001 - a handler may raise anything
            answer = verdict_of(failure)
            delay_ms = None if answer.delay_seconds is None else answer.delay_seconds * 1_000
            kind, unreadable = answer.kind.name, answer.is_unreadable
            verdict = {"kind": kind, "text": answer.error, "delayMs": delay_ms, "unreadable": unreadable}
        self.ask("settle", number=number, verdict=verdict)

    def _take_away(self, number: int) -> None:
        """Stop the handler of a message that others have now."""
        handling = self._handling.pop(number, None)
        if handling is not None and not handling.done():
            log.warning("handler.taken_back: %s", handling.get_name())
            handling.cancel()

    def _extend(self, number: int, seconds: float) -> bool:
        if number in self._handling:
            self.ask("extend", number=number, ms=round(seconds * 1_000))
        return number in self._handling

    # --- the bridge ---------------------------------------------------------------------------------------------

    def ask(self, command: str, **said: Any) -> asyncio.Future[Any]:
        """Say something to Node, behind all that was said before, and return what will be its answer."""
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        # Not everybody waits.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "command": command, **said}).encode() + b"\n")
        return answer

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._take(json.loads(line))
        for answer in self._answers.values():
            with suppress(asyncio.InvalidStateError):
                answer.set_exception(ConnectionError("the Node process has ended"))

    def _take(self, said: Mapping[str, Any]) -> None:
        if "warning" in said:
            log.warning(said["warning"])
        elif "gone" in said:
            self._take_away(said["gone"])
        elif "handler" in said:
            number = said["number"]
            handling = self._handle(self._handlers[said["handler"]], number, said["message"])
            task = self._handling[number] = asyncio.create_task(handling)
            task.add_done_callback(lambda _: self._handling.pop(number, None))
        else:
            answer = self._answers.pop(said["id"])
            if "error" not in said:
                answer.set_result(said["answer"])
            elif said["error"].get("reason"):
                answer.set_exception(from_wire(**said["error"]))
            else:
                answer.set_exception(RuntimeError(said["error"]["message"]))


def _message_of(said: Mapping[str, Any], keep: Callable[[float], bool]) -> NodeMessage:
    return NodeMessage(
        said["topic"],
        said["eventCode"],
        base64.b64decode(said["body"]),
        said["headers"],
        said["key"],
        said["orderingKey"] or said["key"],
        UUID(hex=said["messageId"]),
        int(said["queueId"]),
        int(said["queueOffset"]),
        _time_of(said["storedAtUs"]),
        said["attempt"],
        said["stress"],
        said["bornHost"],
        keep,
    )


def _argument(kind: Any, message: NodeMessage) -> Any:
    if kind is Message:
        return message
    if kind is str:
        return message.body.decode()
    if (get_origin(kind) or kind) in {dict, list}:
        try:
            return json.loads(message.body)
        except ValueError as error:
            raise UnreadableBody(f"the body is not JSON: {error}") from error
    return message.body


def _encoded(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def _time_of(microseconds: str) -> datetime:
    return _EPOCH + timedelta(microseconds=int(microseconds))
