"""The systems that are compared, ours first, and how far ahead of each it wants to be."""

from __future__ import annotations

from tests.bench.peers.jetstream import JetStream
from tests.bench.peers.ours import Ours
from tests.bench.peers.peer import Peer
from tests.bench.peers.pgmq import Pgmq
from tests.bench.peers.pgqueuer_peer import PgQueuer
from tests.bench.peers.procrastinate_peer import Procrastinate
from tests.bench.peers.rabbitmq import RabbitMQ


def peers() -> dict[str, Peer]:
    """Return the systems by their short names."""
    return {
        "ours": Ours(),
        "jetstream": JetStream(),
        "rabbitmq": RabbitMQ(),
        "pgmq": Pgmq(batch=1, connections=8, messages=10_000),
        "pgmq-100": Pgmq(batch=100, connections=2, messages=100_000),
        "pgqueuer": PgQueuer(batch=10, messages=15_000),
        "pgqueuer-100": PgQueuer(batch=100, messages=30_000),
        "procrastinate": Procrastinate(),
    }


AIMS = {"jetstream": 1.5, "rabbitmq": 6.0, "pgmq-100": 1.0, "pgqueuer": 15.0, "pgqueuer-100": 15.0}
"""Our rate, in multiples of theirs."""
