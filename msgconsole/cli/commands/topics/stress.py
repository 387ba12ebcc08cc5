"""`msgcenter stress`: what marks stress traffic, and which groups may be handed it."""

from __future__ import annotations

from typing import Annotated

import typer

from confdb.routes import StressOperator
from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.service import change, look_up, look_up_all
from msgconsole.cli.printing.foretold import NOTHING_DONE, span_said, tell_foretold
from msgconsole.cli.printing.incomplete import tell_incomplete
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    DryRun,
    EventCodeOrAll,
    Limit,
    Namespace,
    NoWait,
    OfGroup,
    ReasonOfChange,
    SubscriberGroup,
    Topic,
)
from msgconsole.operations.configuration.newest import NamedType
from msgconsole.operations.configuration.rule_preview import RulePreview, preview_rule
from msgconsole.operations.configuration.stress_preview import preview_whitelist

app = typer.Typer(no_args_is_help=True)
rule_app = typer.Typer(no_args_is_help=True)
app.add_typer(rule_app, name="rule", help="What marks a message as stress traffic: add, list, remove.")

_NAMED_MAX = 10

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
    dry_run: DryRun = False,
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Mark messages with this header as stress traffic, from now on.

    A dry run counts what of the newest messages would be marked, and which groups would not get it.

    Example: msgcenter stress rule add x-load-test yes --dry-run
    """
    if dry_run:
        rule = (namespace, header, operator, value)
        preview = act(lambda stores: preview_rule(stores, *rule, added=True, reason=reason or ""))
        _tell_rule(preview, as_json=as_json)
        return
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
    dry_run: DryRun = False,
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Remove a rule. Messages it has marked stay marked.

    Example: msgcenter stress rule remove x-load-test yes
    """
    if dry_run:
        rule = (namespace, header, operator, value)
        preview = act(lambda stores: preview_rule(stores, *rule, added=False, reason=reason or ""))
        _tell_rule(preview, as_json=as_json)
        return
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
    dry_run: DryRun = False,
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Put a group on the whitelist: it is handed stress messages of this type.

    A dry run counts the stress messages that it would be handed.

    Example: msgcenter stress allow SG_POINTS TP_TRADE EC_PAID --dry-run
    """
    if dry_run:
        _preview(NamedType(namespace, group, topic, event_code), allowed=True, reason=reason, as_json=as_json)
        return
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
    dry_run: DryRun = False,
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Take a group off the whitelist.

    Example: msgcenter stress disallow SG_POINTS TP_TRADE EC_PAID
    """
    if dry_run:
        _preview(NamedType(namespace, group, topic, event_code), allowed=False, reason=reason, as_json=as_json)
        return
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


def _preview(asked: NamedType, *, allowed: bool, reason: str | None, as_json: bool) -> None:
    """Print what a group would be handed of stress traffic, or would not be any more."""
    preview = act(lambda stores: preview_whitelist(stores, asked, allowed=allowed, reason=reason or ""))
    if as_json:
        print_json(preview)
        return
    tell_foretold(preview.foretold, f"{asked.topic}/{asked.event_code}", is_all=preview.is_all)
    unsettled = preview.unsettled
    if unsettled is None:
        print_line("What it has not settled was not looked at: an expression of the group costs too much for that.")
    else:
        about = "" if unsettled.is_exact else "about "
        verb = "would be handed" if allowed else "would not be handed any more"
        print_line(
            f"Of {unsettled.looked_at:,} messages that it has not settled it {verb} {about}{unsettled.concerned:,}."
        )
    print_line(NOTHING_DONE)


def _tell_rule(preview: RulePreview, *, as_json: bool) -> None:
    """Print what would be marked otherwise."""
    if as_json:
        print_json(preview)
        return
    for each in preview.topics:
        looked_at = span_said(each.looked_at, each.oldest_at, each.newest_at, is_all=False)
        print_line(
            f"{each.topic}: of {looked_at} {each.newly_marked:,} would be stress traffic and are not now, "
            f"{each.no_longer_marked:,} the other way round."
        )
        if each.refused:
            print_line(
                f"{each.topic} refuses stress traffic: {each.refused:,} of these would be refused when they are "
                "published."
            )
        if each.is_cut:
            tell_incomplete(f"it took so long that not all groups of {each.topic} were asked")
    shares = [{"topic": each.topic} | plain(share) for each in preview.topics for share in each.groups]
    nobody = "No group would get more or less of them than now."
    print_rows(shares, ("topic", "group", "newly", "no_longer"), as_json=False, empty=nobody)
    print_line(f"Topics looked at: {preview.topics_looked_at:,}. {NOTHING_DONE}")
    if preview.not_looked_at:
        tell_incomplete(f"topics that were not looked at: {', '.join(preview.not_looked_at[:_NAMED_MAX])}")
