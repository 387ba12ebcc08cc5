"""The glossary has the words people meet, its names are in the code, and what it says we do not say is not said."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from enum import EnumMeta
from functools import cache
from pathlib import Path

import pytest

from confdb.models import Base
from confdb.routes import GroupMode, GroupOrder, StressOperator, SubscriptionMode, TopicKind
from msgbroker.engine.verdicts import DeadLetterReason, Verdict
from msgbroker.v1 import directory_pb2, publisher_pb2, subscriber_pb2
from msgdb import names
from msgdb.jobs.records import JobKind, JobState
from msgdb.reports.alarms import AlarmKind

_ROOT = Path(__file__).parents[2]
_GLOSSARY = (_ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
_PACKAGES = ("msgbroker", "confdb", "msgdb", "msgconsole", "spark_etl", "migrations")
# Other brokers and queues are spoken of there, in their own words; and the glossary is where ours are told from theirs.
_OTHER_SYSTEMS = (_ROOT / "tests" / "bench" / "peers", _ROOT / "docs" / "benchmarks", _ROOT / "docs" / "glossary.md")
# Where such a word is said still. A phrase goes when its place says it in our words; none is added.
_SAID_STILL = (
    "Consuming. At least once",
    "the client's dispatcher on the other",
    "its lanes and its dispatcher",
)


def files(ending: str, *places: str) -> list[Path]:
    """Return our files: neither what is generated nor what was installed."""
    generated = _ROOT / "msgbroker" / "v1"
    found = (path for place in places for path in (_ROOT / place).rglob(f"*{ending}"))
    return sorted(path for path in found if generated not in path.parents and ".venv" not in path.parts)


@cache
def words_in_code() -> frozenset[str]:
    """Return every word that stands anywhere in the packages: identifiers, columns, values."""
    sources = [*files(".py", *_PACKAGES), *files(".proto", "msgbroker/proto")]
    return frozenset(word for path in sources for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))


def named_in_glossary() -> set[str]:
    """Return what the glossary has in backticks."""
    return set(re.findall(r"`([^`]+)`", _GLOSSARY))


# --- words that are there ---------------------------------------------------------------------------------------------


def test_each_table_is_named_in_the_glossary() -> None:
    tables = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}

    assert "cursor" in tables
    assert sorted(tables - named_in_glossary()) == []
    assert sorted(Base.metadata.tables.keys() - named_in_glossary()) == []


@pytest.mark.parametrize(
    "choices",
    [
        *(Verdict, DeadLetterReason, AlarmKind, TopicKind, SubscriptionMode, GroupOrder, GroupMode, StressOperator),
        *(JobKind, JobState),
    ],
)
def test_each_value_that_people_choose_or_are_shown_is_named_in_the_glossary(choices: EnumMeta) -> None:
    assert [name for name in choices.__members__ if name not in named_in_glossary()] == []


@pytest.mark.parametrize("file", [publisher_pb2, subscriber_pb2, directory_pb2], ids=lambda file: file.__name__[-14:])
def test_each_service_and_call_is_named_in_the_glossary(file: object) -> None:
    services = file.DESCRIPTOR.services_by_name  # type: ignore[attr-defined]

    assert len(services) == 1
    for name, service in services.items():
        assert f"- **{name}**" in _GLOSSARY
        assert [method.name for method in service.methods if method.name not in named_in_glossary()] == []


def test_no_word_is_explained_twice() -> None:
    heads = [head for line in re.findall(r"^- (\*\*.*)", _GLOSSARY, re.MULTILINE) for head in heads_of(line)]

    assert len(heads) > 100
    assert [head for head, count in Counter(heads).items() if count > 1] == []


def heads_of(line: str) -> list[str]:
    """Return the words that an entry explains: what is bold before its first sentence."""
    before, _, _ = line.partition(". ")
    return re.findall(r"\*\*([^*]+)\*\*", before)


def test_names_that_the_glossary_gives_are_in_the_code() -> None:
    given = {word for name in named_in_glossary() for word in re.findall(r"[A-Za-z_]\w+", name)}

    assert len(given) > 150
    assert sorted(given - words_in_code()) == []


# --- words that are not there -----------------------------------------------------------------------------------------


def unused_words() -> list[str]:
    """Return the words of the glossary's last table: those that it says are not used."""
    _, _, section = _GLOSSARY.partition("## Words we do not use\n")
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
    return [word.strip() for row in rows[1:] for word in row.split(",")]


def test_the_glossary_says_what_is_not_used() -> None:
    assert {"consumer", "dead letter queue", "producer", "slave"} <= set(unused_words())


def said_in(path: Path) -> Iterator[str]:
    """Return what a file says to people: all of a document, and the comments and docstrings of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield text
    elif path.suffix == ".proto":
        yield " ".join(re.findall(r"//(.*)", text))
    else:
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield node.value.value
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        yield " ".join(token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT)


def without_names(said: str) -> str:
    """Return *said* in one line, without what is in backticks: a name is what it is; and without what is said still."""
    line = " ".join(re.sub(r"`[^`]*`", "", said).split())
    for phrase in _SAID_STILL:
        line = line.replace(phrase, "")
    return line


def test_words_that_we_do_not_use_are_not_used() -> None:
    unused = re.compile(rf"\b(?:{'|'.join(map(re.escape, unused_words()))})s?\b", re.IGNORECASE)
    documents = [_ROOT / "README.md", _ROOT / "CHANGELOG.md", *files(".md", "docs", "helm", *_PACKAGES)]
    code = [*files(".py", "tests", *_PACKAGES), *files(".proto", "msgbroker/proto")]
    ours = [path for path in documents + code if not any(path.is_relative_to(place) for place in _OTHER_SYSTEMS)]

    found = {
        f"{path.relative_to(_ROOT).as_posix()}: {match[0]}"
        for path in ours
        # Reading what it says takes longer than seeing that the word is nowhere in the file.
        if unused.search(re.sub(r"[\s#/]+", " ", path.read_text(encoding="utf-8")))
        for said in said_in(path)
        for match in unused.finditer(without_names(said))
    }

    assert len(ours) > 500
    assert sorted(found) == []
