"""What is said of brokers that cannot be reached: of one, with its address, and of all that are known together."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from msgbroker.contract.errors import BrokerUnavailableError, MessageCenterError, UnavailableCause

_SHOWN_MAX: Final = 10


def at_broker(address: str, words: str) -> str:
    """Return what is wrong with a broker as an error says it to those who do not know which one was tried."""
    return f"broker {address}: {words}"


def why(address: str, error: MessageCenterError) -> str:
    """Return what is wrong in an error's own words, for those who are told the address beside them."""
    return error.message.removeprefix(at_broker(address, ""))


def unavailable(address: str, words: str, cause: UnavailableCause) -> BrokerUnavailableError:
    """Return the error that says in *words* why the broker at *address* cannot be used."""
    return BrokerUnavailableError(at_broker(address, words), address=address, cause=cause)


def none_of(failures: Mapping[str, MessageCenterError]) -> MessageCenterError:
    """Return the one error that tells what each address, of which there is one at least, has failed with."""
    errors = list(failures.values())
    unreachable = [error for error in errors if isinstance(error, BrokerUnavailableError)]
    if len(errors) == 1 or len(unreachable) < len(errors):
        # Who was answered knows more than who was not: what it says is true of what is behind all brokers.
        return next((error for error in errors if error not in unreachable), errors[0])
    said = "; ".join(f"{address} ({why(address, error)})" for address, error in islice(failures.items(), _SHOWN_MAX))
    more = f"; and {len(errors) - _SHOWN_MAX} more" if len(errors) > _SHOWN_MAX else ""
    causes = {error.cause for error in unreachable}
    return BrokerUnavailableError(
        f"no broker can be reached: {said}{more}",
        address=", ".join(islice(failures, _SHOWN_MAX)),
        cause=causes.pop() if len(causes) == 1 else None,
    )
