"""`InMemoryCenter`: a message center inside a test, without broker, database or waiting.

It decides with the broker's own lanes, matcher and stress gate, runs handlers with the client's own runner, and
passes the same conformance suite as a real broker. It needs nothing beside the client, but for HEADER subscriptions
(`msgcenter[testing]`).
"""

from msgbroker.client.testing.center import InMemoryCenter
from msgbroker.client.testing.delivery import DeadLetter
from msgbroker.client.testing.sync_center import SyncInMemoryCenter

__all__ = ["DeadLetter", "InMemoryCenter", "SyncInMemoryCenter"]
