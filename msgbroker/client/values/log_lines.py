"""The one form of the client's log lines, which people read and programs search: `event: key=value …: sentence`.

The event is `component.past_participle`, the keys are words of the glossary, the sentence says what to do, where there
is something. Without a formatter of one's own the text is all one sees: so the keys are in it, and in the record as
well, for those who have one. Bodies, message keys and credentials are never logged.
"""

from __future__ import annotations

import logging
from typing import Final

_LOG: Final = logging.getLogger("msgbroker.client")


def log_line(
    level: int, event: str, sentence: str = "", failure: BaseException | None = None, /, **keys: object
) -> None:
    """Log that something has happened.

    Args:
        level: of `logging`.
        event: what has happened: `component.past_participle`.
        sentence: more about it, for people.
        failure: the exception whose traceback is shown.
        keys: what it has happened to, and with; attributes of the record as well, if it has none of these names.
    """
    if _LOG.isEnabledFor(level):
        # The template is the same for all lines of an event: programs that collect them group them by it.
        shown = " ".join(f"{name}=%s" for name in keys)
        template = ": ".join(filter(None, [event, shown, sentence and "%s"]))
        values = (*keys.values(), sentence) if sentence else tuple(keys.values())
        try:
            _LOG.log(level, template, *values, exc_info=failure, extra=keys, stacklevel=2)
        except KeyError:
            # Records that the application makes (`logging.setLogRecordFactory`) have an attribute of that name already.
            _LOG.log(level, template, *values, exc_info=failure, stacklevel=2)
