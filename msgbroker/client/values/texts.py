"""Texts that come from outside, made fit for the wire: protobuf refuses what is not UTF-8.

An error's text is whatever some library put into it, and to read it runs that library's code.
"""

from __future__ import annotations

from msgbroker.contract.errors import InvalidExpressionError


def safe_text(text: str, chars_max: int) -> str:
    r"""Return *text* as UTF-8 can hold it (a lone surrogate becomes its escape, like `\ud800`), cut to *chars_max*."""
    # Cut before as well: it may be of any length.
    text = text[:chars_max]
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    # PostgreSQL's text has no NUL, and the broker would replace it alike.
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")[:chars_max]


def text_of(value: object) -> str:
    """Return `str(value)`, or what can be said where that fails."""
    try:
        return str(value)
    except Exception as failure:  # noqa: BLE001 - the code of whoever wrote __str__: it may do anything
        return f"(its text cannot be read: {type(failure).__name__})"


def check_encodable(expression: str) -> str:
    """Return *expression* if UTF-8 can hold it, else raise InvalidExpressionError."""
    try:
        expression.encode()
    except UnicodeEncodeError as error:
        raise InvalidExpressionError(f"it is not UTF-8 text: {error}") from error
    return expression
