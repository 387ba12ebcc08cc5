"""SyncMessageCenter: the same client for blocking code. The asyncio core runs in one background thread."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, Unpack

from msgbroker.client.center import Function
from msgbroker.client.core.center_core import CenterCore, make_core
from msgbroker.client.handle.handlers import SubscriberOptions, make_options
from msgbroker.client.sync_publishing_center import SyncPublishingCenter
from msgbroker.client.values.config import AddressesGiven, CenterSettings, Unsaid
from msgbroker.client.values.registration import REGISTER_TIMEOUT_SECONDS, Registration
from msgbroker.contract.errors import MessageCenterError


class SyncMessageCenter(SyncPublishingCenter):
    """A connection to the message center for code without asyncio; may be used from many threads.

    Args and settings as for `MessageCenter`. Handlers that are not async run in threads and may call the center;
    async ones run on its loop and may not.

    Example:
        with SyncMessageCenter("localhost:7400") as center:
            receipt = center.publish("TP_TRADE", "EC_PAID", {"order": 1}, key="order-1")
    """

    def __init__(self, addresses: AddressesGiven = Unsaid.ADDRESSES, **settings: Unpack[CenterSettings]) -> None:
        super().__init__(self._make_core(addresses, settings))

    def _make_core(self, addresses: AddressesGiven, settings: CenterSettings) -> CenterCore:
        return make_core(addresses, settings)

    @property
    def instance_id(self) -> str:
        """The name of this instance in its subscriber groups."""
        return self._core.config.instance_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def subscriber(self, **options: Unpack[SubscriberOptions]) -> Callable[[Function], Function]:
        """Make the decorated function a handler. Args and Raises as for `MessageCenter.subscriber`.

        Example:
            @center.subscriber(group="SG_POINTS", topic="TP_TRADE", event_code="EC_PAID")
            def add_points(order: dict) -> None:
                ...
        """
        checked = make_options(options)

        def attach(function: Function) -> Function:
            self._core.attach(function, checked)
            return function

        return attach

    def start(self) -> None:
        """Connect the subscribers and return once each is attached; handlers run in the background from here.

        Raises:
            GroupNotFoundError: a group is not registered.
        """
        self._background.call(self._core.start())

    def run(self, *, handle_signals: bool | None = None) -> dict[str, MessageCenterError]:
        """Run the subscribers until SIGINT (Ctrl-C) or SIGTERM, or until the center is closed (from another thread).

        Args, Returns and Raises as for `MessageCenter.run`.

        Example:
            center.run()
        """
        return self._background.run(handle_signals=handle_signals)

    @property
    def ended_groups(self) -> dict[str, MessageCenterError]:
        """The groups that are not served any more, and why; `start` tries them again."""
        return self._core.ended_groups

    def register(
        self,
        topic: str,
        event_code: str,
        *,
        group: str = "",
        expression: str = "",
        from_beginning: bool = False,
        timeout_seconds: float = REGISTER_TIMEOUT_SECONDS,
    ) -> list[str]:
        """Register what does not exist yet. Args, Returns, Raises as for `MessageCenter.register`.

        Example:
            center.register("TP_TRADE", "EC_PAID", group="SG_POINTS")
        """
        wanted = Registration(topic, event_code, group, expression, from_beginning)
        return self._background.call(self._core.register(wanted, timeout_seconds))

    def close(self) -> None:
        """Finish as `MessageCenter.close` does, and end the background thread.

        Every call waits until the center is closed; only a handler's own does not.

        Raises:
            RuntimeError: it was called in that thread, by an async handler or a callback of a future.
        """
        self._background.close()
