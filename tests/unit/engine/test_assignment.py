"""Which broker owns a lane."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from msgbroker.engine.assignment import BrokerWeight, able, owner_of
from msgdb.lanes.records import LaneKey

LANES = [LaneKey(group_id, "", queue_id) for group_id in range(10) for queue_id in range(60)]
BROKERS = st.lists(
    st.builds(BrokerWeight, st.uuids(), st.integers(1, 20)), min_size=1, max_size=6, unique_by=lambda b: b.broker_id
)


def owners(brokers: list[BrokerWeight]) -> dict[LaneKey, UUID | None]:
    return {lane: owner_of(lane, brokers) for lane in LANES}


def test_where_no_broker_has_an_instance_nobody_owns_the_lane() -> None:
    assert owner_of(LANES[0], [BrokerWeight(UUID(int=1), 0)]) is None


def test_the_owner_never_changes_between_versions() -> None:
    # Written down: brokers of two versions that run side by side must agree.
    brokers = [BrokerWeight(UUID(int=number), number) for number in (1, 2, 3)]
    lanes = [LaneKey(7, "", queue_id) for queue_id in range(8)]

    assert [owner_of(lane, brokers) for lane in lanes] == [UUID(int=number) for number in [2, 1, 3, 3, 1, 1, 1, 3]]


@given(BROKERS)
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_brokers_does_not_matter(brokers: list[BrokerWeight]) -> None:
    assert owners(brokers) == owners(sorted(brokers, key=lambda broker: broker.instances))


@given(BROKERS)
@settings(max_examples=20, deadline=None)
def test_each_broker_gets_lanes_in_proportion_to_its_instances(brokers: list[BrokerWeight]) -> None:
    share = Counter(owners(brokers).values())

    instances = sum(broker.instances for broker in brokers)
    for broker in brokers:
        expected = len(LANES) * broker.instances / instances
        # Six standard deviations.
        assert abs(share[broker.broker_id] - expected) <= 6 * expected**0.5 + 6


@given(BROKERS, st.uuids(), st.integers(1, 20))
@settings(max_examples=20, deadline=None)
def test_when_a_broker_joins_lanes_move_only_to_it(brokers: list[BrokerWeight], joining: UUID, instances: int) -> None:
    before = owners(brokers)
    after = owners([broker for broker in brokers if broker.broker_id != joining] + [BrokerWeight(joining, instances)])

    if joining not in {broker.broker_id for broker in brokers}:
        assert all(after[lane] in (before[lane], joining) for lane in LANES)


@given(BROKERS)
@settings(max_examples=20, deadline=None)
def test_when_a_broker_leaves_only_its_lanes_move(brokers: list[BrokerWeight]) -> None:
    leaving = brokers[0].broker_id
    before, after = owners(brokers), owners(brokers[1:])

    if brokers[1:]:
        assert all(after[lane] == before[lane] for lane in LANES if before[lane] != leaving)


@given(BROKERS, st.integers(1, 20))
@settings(max_examples=20, deadline=None)
def test_when_instances_join_a_broker_lanes_move_only_to_it(brokers: list[BrokerWeight], more: int) -> None:
    grown = brokers[0].broker_id
    before = owners(brokers)
    after = owners([BrokerWeight(grown, brokers[0].instances + more), *brokers[1:]])

    assert all(after[lane] in (before[lane], grown) for lane in LANES)


FEATURES = st.frozensets(st.sampled_from(["a", "b", "c"]))
MIXED = st.lists(
    st.builds(BrokerWeight, st.uuids(), st.integers(0, 5), FEATURES),
    min_size=1,
    max_size=6,
    unique_by=lambda b: b.broker_id,
)


@given(MIXED, FEATURES)
@settings(max_examples=50, deadline=None)
def test_a_lane_goes_to_a_broker_that_understands_it_if_one_has_an_instance(
    brokers: list[BrokerWeight], requires: frozenset[str]
) -> None:
    understanding = {b.broker_id for b in brokers if b.instances and requires <= b.features}
    for lane in LANES[:60]:
        owner = owner_of(lane, able(brokers, requires))

        assert owner in understanding if understanding else owner is None


@given(MIXED, FEATURES)
@settings(max_examples=50, deadline=None)
def test_brokers_that_do_not_understand_a_lane_change_nothing_about_it(
    brokers: list[BrokerWeight], requires: frozenset[str]
) -> None:
    others = [broker for broker in brokers if requires <= broker.features]

    for lane in LANES[:60]:
        assert owner_of(lane, able(brokers, requires)) == owner_of(lane, others)


@given(MIXED)
@settings(max_examples=20, deadline=None)
def test_what_requires_nothing_is_assigned_as_before_there_were_features(brokers: list[BrokerWeight]) -> None:
    before = [BrokerWeight(broker.broker_id, broker.instances) for broker in brokers]

    for lane in LANES[:60]:
        assert owner_of(lane, able(brokers, frozenset())) == owner_of(lane, before)
