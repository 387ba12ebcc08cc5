"""The options that several commands of topics share."""

from __future__ import annotations

from typing import Annotated

import typer

TraceRate = Annotated[
    float | None,
    typer.Option(
        "--trace-rate", min=0.0, max=1.0, help="The share of its messages of which all that happens is traced."
    ),
]
