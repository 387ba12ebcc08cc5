"""`host:port` as people type it: read in one place, for brokers to talk to and for those to start."""

from __future__ import annotations

from typing import Final

from msgbroker.contract.errors import InvalidSettingError

_PORT_MAX: Final = 65_535


def split_address(setting: str, address: str, *, any_port: bool = False) -> tuple[str, int]:
    """Return host and port of `host:port` or `[host]:port`; *any_port*: port 0 stands for one that is free.

    Raises InvalidSettingError that names *setting*.
    """
    host, _, port = address.rpartition(":")
    is_bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    # Digits of other scripts are numbers for Python, and for nobody else.
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(_PORT_MAX))
    least = 0 if any_port else 1
    if not host or is_bare_ipv6 or not is_number or not least <= int(port) <= _PORT_MAX or not address.isprintable():
        raise InvalidSettingError(setting, f"is {address!r}; host:port is wanted, e.g. 127.0.0.1:7400")
    return host.strip("[]"), int(port)
