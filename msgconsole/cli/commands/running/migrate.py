"""`msgcenter migrate`: bring the databases to this version."""

from __future__ import annotations

from typing import Annotated

import typer

from msgconsole.cli.printing.output import print_rows
from msgconsole.local import places
from msgconsole.local.databases import current_revisions, upgrade


def command(
    check: Annotated[bool, typer.Option("--check", help="Change nothing: say where the databases are.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Bring both databases to this version of the schema. A repeat changes nothing.

    Example: msgcenter migrate
    """
    confdb_url, msgdb_url = places.confdb_url(), places.msgdb_url()
    if not check:
        upgrade(confdb_url, msgdb_url)
    rows = [
        {"database": name, "url": places.without_password(url), "revision": revision}
        for (name, url, revision) in current_revisions(confdb_url, msgdb_url)
    ]
    print_rows(rows, ("database", "url", "revision"), as_json=as_json, empty="")
