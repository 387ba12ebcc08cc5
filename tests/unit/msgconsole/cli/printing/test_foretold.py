"""What dry runs say of what they could not look at: it stands on standard error, beside the numbers."""

from __future__ import annotations

import pytest

from msgconsole.cli.commands.topics.topic_update import _tell_publishing
from msgconsole.cli.printing.foretold import tell_activity
from msgconsole.operations.configuration.activity import Activity
from msgconsole.operations.configuration.topic_preview import Publishing


@pytest.mark.parametrize("has_more", [False, True])
def test_more_instances_than_are_counted_make_it_incomplete(capsys: pytest.CaptureFixture[str], has_more: bool) -> None:
    tell_activity(
        Activity(instances=10_000, has_more_instances=has_more, in_flight=7, behind=1, waiting=2, unanswered=())
    )

    said = capsys.readouterr()
    assert said.out.startswith("Connected instances: 10,000; they hold 7 messages.")
    more = "Incomplete: more than 10,000 instances are connected, and the others are not counted.\n"
    assert said.err == (more if has_more else "")


@pytest.mark.parametrize("has_more", [False, True])
def test_more_publishers_than_are_counted_make_it_incomplete(
    capsys: pytest.CaptureFixture[str], has_more: bool
) -> None:
    _tell_publishing(
        Publishing(
            publishers=10_000,
            has_more_publishers=has_more,
            published=30,
            minutes=15,
            is_complete=True,
            unanswered=(),
        ),
        "TP",
    )

    said = capsys.readouterr()
    assert "(2.0 a minute)" in said.out
    more = "Incomplete: more than 10,000 publishers have a stream, and the others are not counted.\n"
    assert said.err == (more if has_more else "")
