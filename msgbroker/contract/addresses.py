"""`host:port` as people type it: read in one place, for brokers to talk to and for those to start."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from msgbroker.contract.errors import InvalidSettingError

BROKER_VARIABLE: Final = "MSGCENTER_BROKER"
"""Says where the broker is, or several with commas, to clients and commands that are not told otherwise."""
BROKER_DEFAULT: Final = "127.0.0.1:7400"

_PORT_MAX: Final = 65_535
_SCHEME: Final = re.compile(r"\A([a-zA-Z][a-zA-Z0-9+.-]*):/+")
_NOT_IN_ADDRESS: Final = {"@": "without a user", "/?#": "without anything behind the port"}
_HOST: Final = re.compile(r"[^\s:/?#@\[\]\\'\"]+")


def split_address(setting: str, address: str, *, any_port: bool = False) -> tuple[str, int]:
    """Return host and port of `host:port` or `[host]:port`; *any_port*: port 0 stands for one that is free.

    Raises InvalidSettingError that names *setting*, and says what is wrong with the address.
    """
    host, _, port = address.rpartition(":")
    problem = _problem_of(address, host, port, 0 if any_port else 1)
    if problem is not None:
        raise InvalidSettingError(setting, f"is {address!r}; host:port is wanted, {problem}, e.g. {BROKER_DEFAULT}")
    return host.strip("[]"), int(port)


def split_addresses(setting: str, addresses: object) -> list[str]:
    """Return the addresses of brokers in a text with commas or a list, each as `host:port`.

    Raises InvalidSettingError that names *setting*, and says what is wrong with the first that is no address.
    """
    if isinstance(addresses, str):
        addresses = addresses.split(",")
    listed: list[str] = []
    for entry in addresses if isinstance(addresses, Iterable) else (addresses,):
        if not isinstance(entry, str):
            shown = f"{entry!r} of type {type(entry).__name__}"
            raise InvalidSettingError(setting, f"has {shown}; host:port is wanted, or a list of them")
        # gRPC's way to say that names are resolved by DNS, which they are anyhow.
        address = entry.strip().removeprefix("dns:///")
        if address:
            split_address(setting, address)
            listed.append(address)
    if not listed:
        raise InvalidSettingError(setting, "is empty: give at least one host:port")
    return listed


def _problem_of(address: str, host: str, port: str, port_min: int) -> str | None:
    scheme = _SCHEME.match(address)
    if scheme is not None:
        return f"without {scheme.group()}"
    for characters, problem in _NOT_IN_ADDRESS.items():
        if any(character in address for character in characters):
            return problem
    if not address.isprintable() or any(map(str.isspace, address)):
        return "without spaces"
    if ":" in host and not host.startswith("["):
        return "an IPv6 address in brackets and with a port ([::1]:7400)"
    if not _is_port(port, port_min) or ":" not in address:
        return f"with a port from {port_min} to {_PORT_MAX}"
    return None if _is_host(host) else "with the name or the address of a host"


def _is_port(port: str, port_min: int) -> bool:
    # Digits of other scripts are numbers for Python, and for nobody else.
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(_PORT_MAX))
    return is_number and port_min <= int(port) <= _PORT_MAX


def _is_host(host: str) -> bool:
    if not (host.startswith("[") and host.endswith("]")):
        return _HOST.fullmatch(host) is not None
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return True
