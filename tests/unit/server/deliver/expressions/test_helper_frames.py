"""What a broker and its helper process say to each other, and what the helper makes of it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from confdb.routes import Headers
from msgbroker.server.deliver.expressions.helper import answer_to
from msgbroker.server.deliver.expressions.helper_frames import (
    FRAME_BYTES_MAX,
    HEAD,
    Answer,
    BadFrameError,
    Question,
    Request,
    frame,
    length_of,
)

IS_HZ = 'headers.region == "hz"'
HAS_REGION = '"region" in headers'
HZ = {"region": "hz", "键": "值"}
ASKED = Request(
    (IS_HZ, HAS_REGION), (Question(HZ, (0, 1)), Question({"region": "sh"}, (0, 1)), Question({}, (0,))), 9.0
)

GOOD: dict[str, Any] = {"outcomes": [[1]], "seconds": 1.0, "evaluations": 1, "longest_seconds": 1.0}


def content_of(framed: bytes) -> bytes:
    assert length_of(framed[: HEAD.size]) == len(framed) - HEAD.size
    return framed[HEAD.size :]


def test_a_request_arrives_as_it_was_sent() -> None:
    assert Request.decode(content_of(ASKED.encode())) == ASKED


def test_headers_are_sent_as_messages_have_them() -> None:
    sent = Request((IS_HZ,), (Question(Headers(HZ), (0,)),), 1.0)

    assert Request.decode(content_of(sent.encode())).questions[0].headers == HZ


def test_questions_are_answered_in_their_order_each_up_to_the_first_match() -> None:
    answer = answer_to(ASKED)

    assert answer.outcomes == ((1,), (0, 1), (-1,))
    assert answer.evaluations == 4
    assert Answer.decode(content_of(answer.encode()), ASKED) == answer


def test_of_the_time_it_took_the_longest_is_told() -> None:
    answer = answer_to(ASKED)

    assert 0.0 < answer.longest_seconds <= answer.seconds <= 3.01 * answer.longest_seconds


def test_when_its_time_is_over_the_rest_is_left_unanswered() -> None:
    answer = answer_to(Request(ASKED.expressions, ASKED.questions, 0.0))

    assert answer.outcomes == ((1,),)


def test_an_expression_that_does_not_compile_fails_on_every_message() -> None:
    assert answer_to(Request(("nonsense(", HAS_REGION), (Question(HZ, (0, 1)),), 1.0)).outcomes == ((-1, 1),)


def test_of_an_expression_that_failed_the_last_problem_is_told() -> None:
    missing = Question({"名": "x" * 4_000}, (0, 1))
    asked = Request((IS_HZ, HAS_REGION, "nonsense("), (*ASKED.questions, missing), 9.0)
    answer = answer_to(asked)

    problem, *others = Answer.decode(content_of(answer.encode()), asked).problems
    assert problem.endswith('"region"')
    assert others == ["", "it does not compile here"]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        {},
        {**GOOD, "outcomes": []},
        {**GOOD, "outcomes": [[1], [0], [0], [0]]},
        {**GOOD, "outcomes": [[]]},
        {**GOOD, "outcomes": [[0, 0, 0]]},
        {**GOOD, "outcomes": [[2]]},
        {**GOOD, "outcomes": [[[1]]]},
        {**GOOD, "outcomes": [[None]]},
        {**GOOD, "outcomes": 1},
        {**GOOD, "seconds": -1.0, "longest_seconds": -1.0},
        {**GOOD, "seconds": "soon"},
        {**GOOD, "problems": 1},
        {**GOOD, "problems": ["", "", "one too many"]},
        {**GOOD, "evaluations": -1},
        {**GOOD, "longest_seconds": 2.0},
        {**GOOD, "longest_seconds": -1.0},
    ],
)
def test_an_answer_that_does_not_fit_the_question_is_none(said: Any) -> None:
    with pytest.raises(BadFrameError):
        Answer.decode(said if isinstance(said, bytes) else orjson.dumps(said), ASKED)


def test_an_answer_to_the_first_question_is_one() -> None:
    assert Answer.decode(orjson.dumps(GOOD), ASKED).outcomes == ((1,),)


def test_a_frame_has_a_largest_size() -> None:
    assert length_of(frame("x")[: HEAD.size]) == 3
    with pytest.raises(BadFrameError, match="at most"):
        length_of(HEAD.pack(FRAME_BYTES_MAX + 1))
