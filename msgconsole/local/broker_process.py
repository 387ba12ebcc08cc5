"""Broker processes as seen from outside: start one, know when it serves, stop it."""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from msgbroker.contract.addresses import split_address
from msgbroker.contract.errors import BrokerFailedError, CannotListenError, PortBusyError
from msgdb.embedded.log_tail import log_tail

BROKER_COMMAND: Final = (sys.executable, "-m", "msgconsole.cli", "broker")

_READY_SECONDS_MAX: Final = 60.0
_READY_POLL_SECONDS: Final = 0.1
# A broker drains within 10 s; what is not gone then is frozen.
_STOP_SECONDS_MAX: Final = 12.0
_LOG_BYTES_KEPT: Final = 10 * 1024 * 1024


class BrokerProcess:
    """A broker in a session of its own (Ctrl-C does not reach it), writing to *log_file*.

    It runs from the moment it is made: hold signals back until it is noted where it is stopped.
    """

    def __init__(self, command: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> None:
        self._log_file = log_file
        if log_file.exists() and log_file.stat().st_size > _LOG_BYTES_KEPT:
            log_file.replace(log_file.with_suffix(".log.1"))
        self._log_start = log_file.stat().st_size if log_file.exists() else 0
        with log_file.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    [*command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise BrokerFailedError(f"the broker cannot be started: {error.strerror}") from error

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._process.pid

    def wait_until_ready(self, address: str, seconds_max: float = _READY_SECONDS_MAX) -> None:
        """Return when the broker at *address* serves."""
        deadline = time.monotonic() + seconds_max
        while not is_serving(address, timeout_seconds=1.0):
            self.check()
            if time.monotonic() > deadline:
                message = f"the broker was not ready within {seconds_max:g} s{self._log_tail()}"
                raise BrokerFailedError(message)
            time.sleep(_READY_POLL_SECONDS)

    def check(self) -> None:
        """Raise if the broker has ended, with the end of its log."""
        status = self._process.poll()
        if status is not None:
            message = f"the broker ended with status {status}{self._log_tail()}"
            raise BrokerFailedError(message)

    def stop(self) -> None:
        """Let it drain and end; end it the hard way if that takes too long."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _log_tail(self) -> str:
        # What earlier runs said would only mislead.
        return log_tail(self._log_file, self._log_start)


def stop_stranger(pid: int) -> None:
    """Stop broker *pid*, which is no child of ours."""
    try:
        process = psutil.Process(pid)
        process.terminate()
        process.wait(_STOP_SECONDS_MAX)
    except psutil.NoSuchProcess:
        # It has ended by itself in the meantime.
        return
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(_STOP_SECONDS_MAX)


def check_port_is_free(address: str) -> None:
    """Raise PortBusyError if something listens at *address*, CannotListenError if nobody can.

    gRPC would not tell: where sharing is allowed it takes the port beside whoever has it.
    """
    host, port = split_address("--listen", address, any_port=True)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            # Connections of a broker that has just stopped do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except UnicodeError as error:
        raise CannotListenError(address, "no name of a host") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortBusyError(address) from error
        raise CannotListenError(address, error.strerror or str(error)) from error


def is_serving(address: str, timeout_seconds: float) -> bool:
    """Return whether the broker at *address* says that it serves."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from msgbroker.client.connect.channel import may_use_proxy

    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", int(may_use_proxy(address)))]) as channel:
        # The stubs' types know the asynchronous one only.
        health: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = health.Check(health_pb2.HealthCheckRequest(), timeout=timeout_seconds)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
