"""A stand-in for a broker: serves gRPC's health service on `--listen`, ends on SIGTERM; `--fail` ends at once."""

from __future__ import annotations

import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2_grpc


def main() -> None:
    if "--fail" in sys.argv:
        sys.stderr.write("cannot go on: out of luck\n")
        sys.exit(3)
    server = grpc.server(ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    server.add_insecure_port(sys.argv[sys.argv.index("--listen") + 1])
    server.start()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    stopped.wait()
    server.stop(None).wait()


if __name__ == "__main__":
    main()
