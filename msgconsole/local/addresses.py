"""`host:port` as people type it, for brokers to talk to and for those to start: the client reads it alike."""

from __future__ import annotations

from msgbroker.contract.addresses import split_address, split_addresses

__all__ = ["split_address", "split_addresses"]
