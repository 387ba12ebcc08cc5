"""What is said where every broker that is known has been tried in vain."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from msgbroker.contract.errors import BrokerUnavailableError, MessageCenterError

_SHOWN_MAX: Final = 10


def why(address: str, error: MessageCenterError) -> str:
    """Return what is wrong, beside the address: the error names it as well, for those it is raised to."""
    return error.message.removeprefix(f"broker {address}").lstrip(": ")


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
