"""Where a client is told that its brokers are: read once, in its constructor, and refused there with what is wrong."""

from __future__ import annotations

import pytest

from msgbroker.client import InvalidSettingError, MessageCenter, SyncMessageCenter
from msgbroker.client.testing import InMemoryCenter
from msgconsole.local.places import broker_address

CENTERS = [MessageCenter, SyncMessageCenter]


def addresses_of(center: MessageCenter | SyncMessageCenter) -> tuple[str, ...]:
    """Where the center looks for brokers."""
    return center._core.config.addresses


@pytest.fixture(autouse=True)
def _not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MSGCENTER_BROKER", raising=False)


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize(
    "address, problem",
    [
        ("http://localhost:7400", "without http://"),
        ("https://localhost:7400", "without https://"),
        ("grpc://localhost:7400", "without grpc://"),
        ("unix:/run/broker.sock", "without unix:/"),
        ("localhost", "with a port from 1 to 65535"),
        ("localhost:", "with a port from 1 to 65535"),
        ("localhost:http", "with a port from 1 to 65535"),
        ("localhost:0", "with a port from 1 to 65535"),
        ("localhost:65536", "with a port from 1 to 65535"),
        ("localhost:-1", "with a port from 1 to 65535"),
        (":7400", "with the name or the address of a host"),
        ("[]:7400", "with the name or the address of a host"),
        ("[localhost]:7400", "with the name or the address of a host"),
        ("me@localhost:7400", "without a user"),
        ("local host:7400", "without spaces"),
        ("localhost :7400", "without spaces"),
        ("localhost:7400/", "without anything behind the port"),
        ("localhost:7400/messages", "without anything behind the port"),
        ("localhost:7400?tls=1", "without anything behind the port"),
        ("::1:7400", "an IPv6 address in brackets and with a port ([::1]:7400)"),
        ("[::1]", "with a port from 1 to 65535"),
    ],
)
def test_what_is_no_address_is_refused_with_what_is_wrong(
    center: type[MessageCenter | SyncMessageCenter], address: str, problem: str
) -> None:
    for given in (address, ["a:1", address]):
        with pytest.raises(InvalidSettingError) as refused:
            center(given)
        assert refused.value.name == "addresses"
        assert refused.value.message == (
            f"addresses is {address!r}; host:port is wanted, {problem}, e.g. 127.0.0.1:7400"
        )


def test_addresses_are_names_and_addresses_of_hosts_with_ports() -> None:
    given = [
        "localhost:7400",
        "10.0.0.1:1",
        "[::1]:7400",
        "[fe80::1%eth0]:65535",
        "broker-1.brokers.svc:7400",
        "my_broker:7",
    ]

    assert addresses_of(MessageCenter(given)) == tuple(given)
    assert addresses_of(MessageCenter(" a:1 , b:2,")) == ("a:1", "b:2")
    # gRPC's way to say that names are resolved by DNS, which they are anyhow.
    assert addresses_of(MessageCenter("dns:///a:1")) == ("a:1",)


@pytest.mark.parametrize("center", CENTERS)
def test_a_center_that_is_given_no_addresses_takes_those_of_the_environment(
    center: type[MessageCenter | SyncMessageCenter], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert addresses_of(center()) == ("127.0.0.1:7400",)
    monkeypatch.setenv("MSGCENTER_BROKER", "")
    assert addresses_of(center()) == ("127.0.0.1:7400",)
    monkeypatch.setenv("MSGCENTER_BROKER", "a:1, b:2")
    assert addresses_of(center()) == ("a:1", "b:2")
    assert addresses_of(center("c:3")) == ("c:3",)


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize(
    "told, problem", [("http://a:1", "without http://"), ("a:1,b", "with a port"), (",", "is empty")]
)
def test_an_address_in_the_environment_is_refused_by_the_name_of_its_variable(
    center: type[MessageCenter | SyncMessageCenter], told: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSGCENTER_BROKER", told)

    with pytest.raises(InvalidSettingError, match=f"^MSGCENTER_BROKER .*{problem}"):
        center()
    # It talks to nobody.
    InMemoryCenter()


@pytest.mark.parametrize("told", ["dns:///a:1", "dns:///a:1, b:2,", " dns:///[::1]:7400 "])
def test_the_command_line_reads_addresses_as_a_center_does(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGCENTER_BROKER", told)
    read = ",".join(addresses_of(MessageCenter()))

    assert broker_address(None, {"MSGCENTER_BROKER": told}) == read
    assert broker_address(told, {}) == read
