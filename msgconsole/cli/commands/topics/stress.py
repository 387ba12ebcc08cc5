"""`msgcenter stress`: what marks stress traffic, and which groups may be handed it."""

from __future__ import annotations

from typing import Annotated

import typer

from confdb.routes import StressOperator
from msgconsole.cli.carrying_out.service import change, look_up, look_up_all
from msgconsole.cli.printing.output import print_rows
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    EventCodeOrAll,
    Limit,
    Namespace,
    NoWait,
    OfGroup,
    ReasonOfChange,
    SubscriberGroup,
    Topic,
)

app = typer.Typer(no_args_is_help=True)
rule_app = typer.Typer(no_args_is_help=True)
app.add_typer(rule_app, name="rule", help="What marks a message as stress traffic: add, list, remove.")

_Header = Annotated[str, typer.Argument(metavar="HEADER", help="The header's name.")]
_Operator = Annotated[
    StressOperator, typer.Option("--operator", case_sensitive=False, help="How the header is compared.")
]
_Value = Annotated[str, typer.Argument(metavar="VALUE", help="What it is compared with; none for EXISTS.")]


@rule_app.command("add")
def add_rule(
    header: _Header,
    value: _Value = "",
    operator: _Operator = StressOperator.EQUALS,
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Mark messages with this header as stress traffic, from now on.

    Example: msgcenter stress rule add x-load-test yes
    """
    change(
        lambda service: service.stress.add_rule(namespace, header, operator, value),
        lambda rule: f"Messages with {rule.header} {rule.operator} {rule.value} are stress traffic now.",
        as_json=as_json,
        wait=not no_wait,
        reason=reason,
    )


@rule_app.command("list")
def list_rules(namespace: Namespace = DEFAULT_NAMESPACE, as_json: AsJson = False) -> None:
    """List the rules.

    Example: msgcenter stress rule list
    """
    found = look_up(lambda service: service.stress.list_rules(namespace)).items
    print_rows(found, ("header", "operator", "value", "created_at"), as_json=as_json, empty="No stress rules.")


@rule_app.command("remove")
def remove_rule(
    header: _Header,
    value: _Value = "",
    operator: _Operator = StressOperator.EQUALS,
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Remove a rule. Messages it has marked stay marked.

    Example: msgcenter stress rule remove x-load-test yes
    """
    change(
        lambda service: service.stress.remove_rule(namespace, header, operator, value),
        lambda rule: f"The rule {rule.header} {rule.operator} {rule.value} is removed.",
        as_json=as_json,
        wait=not no_wait,
        reason=reason,
    )


@app.command("allow")
def allow(
    group: SubscriberGroup,
    topic: Topic,
    event_code: EventCodeOrAll = "*",
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Put a group on the whitelist: it is handed stress messages of this type.

    Example: msgcenter stress allow SG_POINTS TP_TRADE EC_PAID
    """
    change(
        lambda service: service.stress.allow(namespace, group, topic, event_code),
        lambda entry: f"{entry.group} may be handed stress messages of {entry.topic}/{entry.event_code}.",
        as_json=as_json,
        wait=not no_wait,
        reason=reason,
    )


@app.command("disallow")
def disallow(
    group: SubscriberGroup,
    topic: Topic,
    event_code: EventCodeOrAll = "*",
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Take a group off the whitelist.

    Example: msgcenter stress disallow SG_POINTS TP_TRADE EC_PAID
    """
    change(
        lambda service: service.stress.disallow(namespace, group, topic, event_code),
        lambda entry: f"{entry.group} is handed no stress messages of {entry.topic}/{entry.event_code} any more.",
        as_json=as_json,
        wait=not no_wait,
        reason=reason,
    )


@app.command("list")
def list_whitelist(
    group: OfGroup = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    limit: Limit = 1_000,
    as_json: AsJson = False,
) -> None:
    """List the whitelist.

    Example: msgcenter stress list
    """
    found = look_up_all(
        lambda service, after, count: service.stress.list_whitelist(namespace, group=group, after=after, limit=count),
        first=0,
        count_max=limit,
    )
    print_rows(found, ("group", "topic", "event_code", "created_at"), as_json=as_json, empty="The whitelist is empty.")
