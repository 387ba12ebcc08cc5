"""MessageCenter: publish and subscribe from asyncio."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from msgbroker.client.core.center_core import CenterCore, make_core
from msgbroker.client.handle.handlers import SubscriberOptions, make_options
from msgbroker.client.publishing_center import PublishingCenter
from msgbroker.client.values.config import AddressesGiven, CenterSettings, Unsaid
from msgbroker.client.values.registration import REGISTER_TIMEOUT_SECONDS, Registration
from msgbroker.contract.errors import MessageCenterError

Function = TypeVar("Function", bound=Callable[..., Any])


class MessageCenter(PublishingCenter):
    """A connection to the message center: publishes, and runs the handlers of subscriber groups.

    Nothing is opened before it is needed: the first publish connects, and `start` or `run` connects the subscribers. It
    reconnects by itself, to the addresses given and to the brokers these tell of.

    Args:
        addresses: `host:port`, several with commas or as a list; tried in turn. Default: those in the environment's
            `MSGCENTER_BROKER`, else `127.0.0.1:7400`.
        namespace: where topics and groups live.
        publisher_group: the name of the publishing application; must be registered when given.
        instance_id: names this process in its subscriber groups, stable across reconnects. Default: made up.
        unanswered_messages_max: how many published messages may wait for their answer.
        unanswered_bytes_max: how many bytes of them.
        on_unavailable: `"wait"` keeps and resends what is unanswered while no broker or no database is there (until
            the publish timeout); `"raise"` fails it with an UnavailableError.
        publish_timeout_seconds: how long one publish may wait for its answer; None: for ever.
        answer_timeout_seconds: a broker that answers nothing for so long is left for the next one.
        connect_timeout_seconds: how long one connection attempt may take.
        backoff_initial_seconds: the first wait before connecting again; it doubles each time.
        backoff_max_seconds: the longest such wait.
        drain_timeout_seconds: how long `close` waits for running handlers and unanswered messages.
        credentials: `grpc.ChannelCredentials` for TLS.

    Raises:
        InvalidSettingError: a setting is out of bounds, or an address is not host:port.
        InvalidNameError: a name is not of the alphabet.

    Example:
        async with MessageCenter("localhost:7400") as center:
            receipt = await center.publish("TP_TRADE", "EC_PAID", {"order": 1}, key="order-1")
    """

    def __init__(self, addresses: AddressesGiven = Unsaid.ADDRESSES, **settings: Unpack[CenterSettings]) -> None:
        super().__init__(self._make_core(addresses, settings))

    def _make_core(self, addresses: AddressesGiven, settings: CenterSettings) -> CenterCore:
        return make_core(addresses, settings)

    @property
    def instance_id(self) -> str:
        """The name of this instance in its subscriber groups."""
        return self._core.config.instance_id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def subscriber(self, **options: Unpack[SubscriberOptions]) -> Callable[[Function], Function]:
        """Make the decorated function the handler of a message type in a subscriber group.

        The function, async or not, gets what its first parameter is annotated with: Message (or nothing), or the
        body as bytes, str, dict or list (read from JSON), a pydantic model, or any type that pydantic reads from
        JSON, where it is installed; a second parameter annotated Message gets the message beside the body.
        Returning acknowledges; raising makes another attempt later; `Reject`, `RetryAfter` and `Release` say
        otherwise. A body that cannot be read is rejected. Functions that are not async run in threads, at most 64
        for each group.

        Args:
            group: the subscriber group; its instances share the messages.
            topic: the topic's name.
            event_code: the event code's name; `*` (the default): all that no other handler of the group here names.
            concurrency: how many calls may run at once; default 64.
            credit: how many messages this instance holds at most; default: follows the speed of the handlers.
            timeout_seconds: a call that takes longer counts as failed.
            body: the type of the body, where the annotation cannot be read (a class local to a function).
            register: register topic, group and subscription first (for development; the broker must allow it).
            expression: with *register*: a HEADER subscription with this CEL expression. A message without a header
                that it reads does not match, with `!=` and `!` as well; ask first: `"region" in headers && ...`.
            from_beginning: with *register*: deliver what is stored already, too; a group that has read the topic
                already is refused (BEGINNING_PASSED).

        Raises:
            InvalidSettingError: an option is out of bounds, or the function cannot be a handler.
            InvalidNameError: a name is not of the alphabet.

        Example:
            @center.subscriber(group="SG_POINTS", topic="TP_TRADE", event_code="EC_PAID")
            async def add_points(order: dict, message: Message) -> None:
                ...
        """
        checked = make_options(options)

        def attach(function: Function) -> Function:
            self._core.attach(function, checked)
            return function

        return attach

    async def start(self) -> None:
        """Connect the subscribers, and return once each group has been attached by a broker.

        Where one is refused the others are served all the same, until the center is closed. The next call tries again
        those that are not served.

        Raises:
            GroupNotFoundError: a group is not registered.
            RegistrationDisabledError: a subscriber has `register=True` and the broker does not allow it.

        Example:
            await center.start()   # handlers run in the background from here
        """
        await self._core.start()

    async def run(self, *, handle_signals: bool | None = None) -> dict[str, MessageCenterError]:
        """Run the subscribers until SIGINT (Ctrl-C) or SIGTERM, or until the center is closed or this call cancelled.

        The first of these signals closes the center in good order, and this call returns; a second one ends the process
        at once. What handled them before does so again afterwards.

        A group that was attached and is refused for good later (it was deleted, for example) ends alone, which is
        logged at once; the others go on.

        Args:
            handle_signals: None: in the main thread, and not those that the application has a handler of its own for,
                of signal.signal or of its event loop. True: both signals in any case. False: neither.

        Returns:
            The groups that have ended so, and why; empty as a rule.

        Raises:
            MessageCenterError: a group cannot be subscribed, as for `start`; or none is left to serve: what the last
                one ended with, with a note of each of the others.
            InvalidSettingError: *handle_signals* is True, and this is not the main thread.

        Example:
            await center.run()
        """
        return await self._core.run(handle_signals=handle_signals)

    @property
    def ended_groups(self) -> dict[str, MessageCenterError]:
        """The groups that are not served any more, and why; `start` tries them again."""
        return self._core.ended_groups

    async def register(
        self,
        topic: str,
        event_code: str,
        *,
        group: str = "",
        expression: str = "",
        from_beginning: bool = False,
        timeout_seconds: float = REGISTER_TIMEOUT_SECONDS,
    ) -> list[str]:
        """Register a topic, an event code and, with *group*, a subscription, as far as they do not exist.

        For development and demonstrations; the broker must allow it. Returns once the subscription is active.

        A message without a header that *expression* reads does not match: `headers.region != "hz"` takes none without a
        region. Ask first: `"region" in headers && ...`, or `!("region" in headers) || ...` to take such messages. Where
        it reads one unasked in a way that can surprise, a warning is logged (`msgbroker.client`).

        Args:
            topic: the topic's name.
            event_code: the event code's name; with *group* also `*`, all of the topic.
            group: the subscriber group to register and to subscribe; none if empty.
            expression: with *group*: a HEADER subscription with this CEL expression.
            from_beginning: with *group*: deliver what is stored already, too.
            timeout_seconds: how long to wait until the subscription is active on every broker; default 15.

        Returns:
            What was made; empty if all existed.

        Raises:
            RegistrationDisabledError: the broker does not let clients register.
            InvalidExpressionError: *expression* does not compile.
            ExpressionTooCostlyError: *expression* would take too long to evaluate for every message.
            SubscriptionDiffersError: the group has the subscription with another expression.

        Example:
            await center.register("TP_TRADE", "EC_PAID", group="SG_POINTS")
        """
        wanted = Registration(topic, event_code, group, expression, from_beginning)
        return await self._core.register(wanted, timeout_seconds)

    async def close(self) -> None:
        """Stop: finish the running handlers, send their verdicts, wait for unanswered messages; bounded in time.

        What is not finished in `drain_timeout_seconds` is given back (handlers) or fails (publishes); telling the
        broker takes a few seconds more at most. Every call waits until the center is closed, and who gives up waiting
        leaves it to close. Only a handler that closes its center does not wait: it is one of those that are waited for.

        Example:
            await center.close()   # as leaving `async with` does
        """
        await self._core.close()
