"""Misspelt settings are noticed, and only those."""

from __future__ import annotations

import pytest

from msgbroker.contract.errors import InvalidSettingError
from msgconsole.local.settings_check import check_names, describe, load_broker_settings

URLS = {"confdb_url": "postgresql://a:hush@h/c", "msgdb_url": "postgresql://a:hush@h/m"}


def test_a_misspelt_name_is_refused_with_the_right_one() -> None:
    with pytest.raises(InvalidSettingError, match=r"did you mean MSGCENTER_LISTEN\?"):
        check_names(["PATH", "MSGCENTER_LISTN"])


@pytest.mark.parametrize(
    "name",
    [
        "MSGCENTER_LISTEN",
        "MSGCENTER_BROKER",
        "MSGCENTER_ARCHIVE",
        "MSGCENTER_MSGDB_REPLICA_URL",
        "MSGCENTER_SPARK_MASTER",
        "MSGCENTER_TEST_FSYNC",
        "MSGCENTER_CHAOS",
        "MSGCENTER_PORT",
        "MSGCENTER_SERVICE_HOST",
        "MSGCENTER_BROKER_PORT_7400_TCP_ADDR",
        "MSGCENTER_BROKER_SERVICE_PORT_GRPC",
    ],
)
def test_settings_and_what_kubernetes_adds_are_accepted(name: str) -> None:
    check_names([name])


def test_a_value_out_of_bounds_is_refused_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGCENTER_STORE_POOL_SIZE", "many")
    with pytest.raises(InvalidSettingError, match="MSGCENTER_STORE_POOL_SIZE is refused"):
        load_broker_settings({}, **URLS)


def test_settings_are_described_without_their_secrets() -> None:
    environment = {"MSGCENTER_BROKER": "b:1", "MSGCENTER_MSGDB_REPLICA_URL": "postgresql://a:hush@h/r"}
    described = describe(load_broker_settings({}, **URLS), environment)
    assert "hush" not in str(described)
    assert {row["variable"] for row in described} >= {"MSGCENTER_MSGDB_URL", "MSGCENTER_LISTEN"}
    values = {row["variable"]: row["value"] for row in described}
    commands = [values[f"MSGCENTER_{name}"] for name in ("BROKER", "NAMESPACE", "DIRECTORY")]
    assert commands == ["b:1", "default", ".msgcenter"]


def test_what_became_of_frames_is_not_kept_for_less_long_than_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGCENTER_FRAME_DAYS", "3")
    with pytest.raises(InvalidSettingError, match=r"MSGCENTER_FRAME_DAYS is refused: .*messages are kept for 7 days"):
        load_broker_settings({}, **URLS)
    monkeypatch.setenv("MSGCENTER_RETENTION_DAYS", "3")

    values = {row["variable"]: row["value"] for row in describe(load_broker_settings({}, **URLS), {})}

    kept = [values[f"MSGCENTER_{name}_DAYS"] for name in ("RETENTION", "FRAME", "DEAD_LETTER")]
    assert kept == [3, 3, 90]
