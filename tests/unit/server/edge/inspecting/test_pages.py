"""Pages of who is connected: each once, whoever comes and goes meanwhile."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.contract.errors import InvalidRequestFieldError
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.edge.inspecting.pages import (
    Attached,
    Place,
    Wanted,
    checked_limit,
    page_of,
    page_of_instances,
    place_of,
)
from tests.support.broker_builders import group_route
from tests.support.one_group import OneGroup

ALL = Wanted("", "", "")


def groups_of(*counts: int, namespace: str = "default") -> dict[int, GroupDelivery]:
    """Return groups with so many instances each; their ids go down as they come."""
    groups: dict[int, GroupDelivery] = {}
    for number, count in enumerate(counts):
        group = OneGroup().group
        group.detach(next(iter(group.instances.values())), 0.0)
        group_id = len(counts) - number
        group.route = dataclasses.replace(group_route(), group_id=group_id, name=f"SG_{group_id}", namespace=namespace)
        for index in range(count):
            group.attach(Instance(f"i{index}", 10, 1_000), 0.0)
        groups[group_id] = group
    return groups


def all_pages(groups: dict[int, GroupDelivery], limit: int, wanted: Wanted = ALL) -> list[Attached]:
    seen: list[Attached] = []
    page = ""
    for _ in range(100):
        found, page = page_of_instances(groups, wanted, place_of(page), limit)
        seen += found
        if not page:
            return seen
        assert len(found) == limit
    raise AssertionError("the pages have no end")


@given(st.lists(st.integers(0, 5), max_size=4), st.integers(1, 7))
def test_each_instance_is_on_exactly_one_page(counts: list[int], limit: int) -> None:
    groups = groups_of(*counts)

    seen = [each.instance.name for each in all_pages(groups, limit)]

    assert sorted(seen) == sorted(name for group in groups.values() for name in group.instances)


def test_who_goes_and_who_comes_takes_nobody_else_off_the_next_page() -> None:
    groups = groups_of(4)
    (group,) = groups.values()
    first, next_page = page_of_instances(groups, ALL, Place(), 2)
    group.detach(first[1].instance, 0.0)
    group.attach(Instance("late", 10, 1_000), 0.0)
    second, _ = page_of_instances(groups, ALL, place_of(next_page), 10)

    assert [each.instance.instance_id for each in (*first, *second)] == ["i0", "i1", "i2", "i3", "late"]


def test_only_those_that_are_asked_for_are_told_of() -> None:
    groups = groups_of(2, 2) | {9: next(iter(groups_of(1, namespace="other").values()))}

    assert {each.group.route.name for each in all_pages(groups, 10, Wanted("", "SG_1", ""))} == {"SG_1"}
    assert len(all_pages(groups, 10, Wanted("default", "", ""))) == 4
    named = all_pages(groups, 10, Wanted("", "", "i1"))
    assert [(each.group.route.name, each.instance.instance_id) for each in named] == [("SG_1", "i1"), ("SG_2", "i1")]


def test_connections_without_groups_go_by_their_numbers_alone() -> None:
    instances = [Instance(str(number), 1, 1) for number in range(5)]
    first, next_page = page_of(reversed(instances), Place(), 3)
    second, end = page_of(reversed(instances), place_of(next_page), 3)

    assert ([*first, *second], end) == (instances, "")


@pytest.mark.parametrize("page", ["x", "1", "1:2:3", "-1:2", "1:" + "9" * 30, "\N{ARABIC-INDIC DIGIT ONE}:2"])
def test_a_page_that_no_answer_named_is_refused(page: str) -> None:
    with pytest.raises(InvalidRequestFieldError):
        place_of(page)


def test_a_page_has_its_bounds() -> None:
    assert (checked_limit(0), checked_limit(500)) == (100, 500)
    with pytest.raises(InvalidRequestFieldError):
        checked_limit(501)
