"""What other attempts and credits would do to what a group is at."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from msgbroker.engine.retry import RetryPolicy
from msgconsole.operations.brokers.connected import InstanceRow
from msgconsole.operations.configuration.group_preview import Holding, compare_attempts, holding_more

policies = st.builds(
    RetryPolicy,
    st.lists(st.just(10.0), max_size=6).map(tuple),
    st.integers(min_value=1, max_value=8),
)


@given(st.dictionaries(st.integers(1, 10), st.integers(1, 1_000)), policies, policies)
def test_a_message_whose_next_attempt_is_the_last_is_counted(
    waiting: dict[int, int], before: RetryPolicy, after: RetryPolicy
) -> None:
    counted = compare_attempts(waiting, before, after)

    assert counted.waiting == sum(waiting.values())
    # Without a wait after it, it is a dead letter should it fail.
    are_last = [{each for each in waiting if policy.delay_after(each) is None} for policy in (before, after)]
    assert [counted.last_before, counted.last_after] == [sum(waiting[each] for each in of) for of in are_last]
    assert counted.newly_last == sum(waiting[each] for each in are_last[1] - are_last[0])
    assert counted.no_longer_last == sum(waiting[each] for each in are_last[0] - are_last[1])


def instance(name: str, unsettled: int) -> InstanceRow:
    return InstanceRow(
        namespace="default",
        group="SG_POINTS",
        instance_id=name,
        host="host",
        client_version="1",
        broker="127.0.0.1:7400",
        since=datetime.now(UTC),
        unsettled=unsettled,
        credit=0,
        settled_per_second=0.0,
        last_verdict=None,
        last_verdict_at=None,
        paused=False,
        pulls=False,
        broker_id=uuid4(),
        attachment="1",
        group_id=1,
    )


def test_instances_that_hold_more_than_they_could_be_given_are_named_the_fullest_first() -> None:
    instances = [instance("a", 10), instance("b", 11), instance("c", 50)]

    assert holding_more(instances, 10) == (
        Holding("c", "127.0.0.1:7400", 50),
        Holding("b", "127.0.0.1:7400", 11),
    )
