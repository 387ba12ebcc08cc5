"""Reading settings from the environment, with the mistakes that pydantic does not notice: misspelt names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from pydantic import SecretStr, ValidationError

from msgbroker.contract.addresses import split_address
from msgbroker.contract.errors import InvalidSettingError
from msgbroker.contract.names import DEFAULT_NAMESPACE
from msgbroker.server.settings import BrokerSettings
from msgconsole.local.places import DIRECTORY, without_password

PREFIX: Final = "MSGCENTER_"
_OF_COMMANDS: Final[Mapping[str, tuple[str | None, str]]] = {
    "BROKER": (
        None,
        "Commands and clients: the broker to talk to, several with commas. Commands: default, that of `msgcenter up`.",
    ),
    "NAMESPACE": (DEFAULT_NAMESPACE, "Commands: the tenant that names belong to."),
    "DIRECTORY": (DIRECTORY, "`msgcenter up`: where data and logs are kept."),
    "ARCHIVE": (
        None,
        "Jobs of the archive: where it lies, a path or a URL. Default: beside the data of `msgcenter up`.",
    ),
    "MSGDB_REPLICA_URL": (None, "Jobs of the archive: the replica of the message store that messages are read from."),
    "SPARK_MASTER": ("local[*]", "Jobs of the archive: where Spark runs, as in spark://host:7077."),
}
# Of the test suite, whose processes hand it on to the brokers they start.
_OF_TESTS: Final = ("TEST_", "CHAOS")
# Kubernetes adds such variables for every service whose name begins like ours.
_OF_KUBERNETES: Final = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)\Z")


def load_broker_settings(environment: Mapping[str, str], **overrides: object) -> BrokerSettings:
    """Return the settings of a broker, or raise InvalidSettingError naming what is wrong."""
    check_names(environment)
    try:
        settings = BrokerSettings.load(**overrides)
    except ValidationError as error:
        first = error.errors()[0]
        name = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
        raise InvalidSettingError(name, f"is refused: {first['msg']}") from error
    split_address(f"{PREFIX}LISTEN", settings.listen, any_port=True)
    if settings.advertise:
        split_address(f"{PREFIX}ADVERTISE", settings.advertise)
    return settings


def check_names(environment: Iterable[str]) -> None:
    """Raise InvalidSettingError if a MSGCENTER_ variable is none that anything reads."""
    known = {name.upper() for name in BrokerSettings.model_fields} | _OF_COMMANDS.keys()
    for variable in sorted(environment):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in known or name.startswith(_OF_TESTS) or _OF_KUBERNETES.match(name):
            continue
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {PREFIX}{close[0]}?" if close else ""
        raise InvalidSettingError(variable, f"is not a setting{hint}")


def describe(settings: BrokerSettings, environment: Mapping[str, str]) -> list[dict[str, object]]:
    """Return name, value (without secrets) and meaning of each setting: the broker's, and those of the commands."""
    rows: list[dict[str, object]] = [
        {"variable": PREFIX + name, "value": _shown(environment.get(PREFIX + name, default)), "meaning": meaning}
        for name, (default, meaning) in _OF_COMMANDS.items()
    ]
    for name, field in BrokerSettings.model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = without_password(value.get_secret_value())
        rows.append({"variable": PREFIX + name.upper(), "value": value, "meaning": field.description})
    return rows


def _shown(value: str | None) -> str | None:
    return None if value is None else without_password(value)
