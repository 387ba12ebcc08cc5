"""What a broker and its helper process say to each other: JSON, each with its length before it.

JSON and nothing cleverer: whatever comes out of a process that may be out of its mind can be looked at before it is
used.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import orjson

from msgbroker.engine.matching import Outcome

HEAD: Final = struct.Struct(">I")
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
PROBLEM_CHARS_MAX: Final = 300
_OUTCOMES: Final = frozenset(Outcome)


class BadFrameError(Exception):
    """What came from the other side is not a frame as it was agreed on."""


@dataclass(frozen=True, slots=True)
class HelperBounds:
    """What a helper process may take of its machine. The broker tells it at its start."""

    cpu_seconds_max: float = 5.0
    """For one request: then the process is ended, in the middle of an evaluation if need be."""
    memory_bytes_max: int = 1024 * 1024 * 1024
    niceness: int = 19


@dataclass(frozen=True, slots=True)
class Question:
    """A message's headers, and the expressions (by number) to evaluate on them, until one matches."""

    headers: dict[str, str]
    expressions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """Questions, to be answered from the first one on for about `seconds` of CPU time."""

    expressions: tuple[str, ...]
    questions: tuple[Question, ...]
    seconds: float

    def encode(self) -> bytes:
        """Return the request as the bytes that go to the helper process."""
        questions = [(question.headers, question.expressions) for question in self.questions]
        return frame({"expressions": self.expressions, "questions": questions, "seconds": self.seconds})

    @classmethod
    def decode(cls, content: bytes) -> Request:
        """Return the request that these bytes hold."""
        said = orjson.loads(content)
        questions = tuple(Question(headers, tuple(numbers)) for headers, numbers in said["questions"])
        return cls(tuple(said["expressions"]), questions, said["seconds"])


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of the first questions, at least of one: the values of `Outcome`, up to the first match."""

    outcomes: tuple[tuple[int, ...], ...]
    seconds: float
    """How much CPU time the evaluations took."""
    evaluations: int
    longest_seconds: float
    """How much of that went to the message that took longest."""
    problems: tuple[str, ...] = ()
    """What went wrong when each expression failed the last time, by its number; empty where it did not."""

    def encode(self) -> bytes:
        """Return the answer as the bytes that go to the broker."""
        said = {"outcomes": self.outcomes, "seconds": self.seconds, "evaluations": self.evaluations}
        return frame({**said, "longest_seconds": self.longest_seconds, "problems": self.problems})

    @classmethod
    def decode(cls, content: bytes, request: Request) -> Answer:
        """Return the answer to *request*. Raises BadFrameError where it is none."""
        try:
            said = orjson.loads(content)
            answer = cls(
                tuple(tuple(int(outcome) for outcome in outcomes) for outcomes in said["outcomes"]),
                float(said["seconds"]),
                int(said["evaluations"]),
                float(said["longest_seconds"]),
                tuple(str(problem)[:PROBLEM_CHARS_MAX] for problem in said.get("problems", ())),
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise BadFrameError(f"{type(error).__name__}: {error}") from error
        pairs = zip(answer.outcomes, request.questions, strict=False)
        is_good = 0 < len(answer.outcomes) <= len(request.questions) and all(
            0 < len(outcomes) <= len(question.expressions) and _OUTCOMES.issuperset(outcomes)
            for outcomes, question in pairs
        )
        is_good = is_good and len(answer.problems) <= len(request.expressions)
        if not (is_good and answer.seconds >= answer.longest_seconds >= 0.0 and answer.evaluations >= 0):
            raise BadFrameError("the answer does not fit the question")
        return answer


def frame(content: Any) -> bytes:
    """Return *content* encoded, with its length before it."""
    encoded = orjson.dumps(content)
    return HEAD.pack(len(encoded)) + encoded


def length_of(head: bytes) -> int:
    """Return how many bytes come after *head*. Raises BadFrameError where that is too many."""
    (length,) = HEAD.unpack(head)
    if length > FRAME_BYTES_MAX:
        raise BadFrameError(f"a frame of {length} bytes; {FRAME_BYTES_MAX} at most")
    return int(length)
