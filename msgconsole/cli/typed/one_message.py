"""One message, as people name it: by its id, or by the queue and the offset at which it lies."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

MessageId = Annotated[UUID | None, typer.Argument(metavar="MESSAGE_ID", help="The message's id.")]
InQueue = Annotated[int | None, typer.Option("--queue", help="Instead of its id: the queue that it lies in, ...")]
AtOffset = Annotated[int | None, typer.Option("--offset", min=0, help="... and its offset there.")]


def check_named_once(message_id: UUID | None, queue_id: int | None, queue_offset: int | None) -> None:
    """Refuse a message that is named by nothing, by half of a place, or twice."""
    if (message_id is None) == (queue_id is None) or (queue_id is None) != (queue_offset is None):
        raise typer.BadParameter("give the message's id, or --queue and --offset, and not both")
