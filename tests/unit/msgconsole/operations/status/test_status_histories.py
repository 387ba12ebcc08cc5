"""For random histories: the status is what became of a message, or says that it cannot tell.

Of what it cannot tell apart one thing is what really became of it. More histories: `STATUS_HISTORIES=5000 pytest
--timeout 0 <this file>`.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from msgbroker.client.connect.inspection import MessageStand
from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.verdicts import Verdict
from msgconsole.operations.status.answers import Basis, GroupStatus, State, Why
from msgconsole.operations.status.deciding import decide
from msgconsole.operations.status.facts import GroupFacts
from tests.support.lane_builders import KEY
from tests.support.status_scene import EXPRESSIONS, OUR_TOPIC, Fate, Registered, Scene

pytestmark = pytest.mark.slow

HEADERS = st.sampled_from([{}, {"region": "hz"}, {"region": "bj"}, {"region": "bj", "vip": "1"}])
CODES = st.sampled_from(["EC_PAID", "EC_PAID", "EC_SENT"])
EXPRESSION = st.sampled_from([None, None, *EXPRESSIONS])
OURS = Registered(holder=KEY.group_id)
NEVER_READ = {Why.NO_SUBSCRIPTION, Why.SUBSCRIBED_LATER, Why.GROUP_CREATED_LATER}


def told(status: GroupStatus) -> set[Fate]:
    """Return all that a status says it may be."""
    return {(status.state, status.why), *((each.state, each.why) for each in status.others)}


def same(fate: Fate) -> Fate:
    """Return a fate as it is told of a group that was not there when the message came."""
    return (fate[0], Why.GROUP_CREATED_LATER if fate[1] in NEVER_READ else fate[1])


class StatusMachine(RuleBasedStateMachine):
    """A group through its configurations."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()

    @initialize(
        begins=st.sampled_from([Registered(), OURS, OURS, OURS, replace(OURS, holder=6), replace(OURS, topic_id=-9)]),
        expression=EXPRESSION,
    )
    def begin(self, *, begins: Registered, expression: str | None) -> None:
        self.scene.change(begins)
        if begins.holder is not None:
            self.scene.subscribe("EC_PAID", expression, from_beginning=False)
            self.pass_time(100.0)

    # --- publishers and time ------------------------------------------------------------------------------------

    @rule(
        code=CODES,
        headers=st.lists(HEADERS, min_size=1, max_size=4),
        stress=st.sampled_from([False, False, True]),
        only_for=st.sampled_from([None, None, None, KEY.group_id, 99]),
    )
    def publish(self, code: str, headers: list[dict[str, str]], *, stress: bool, only_for: int | None) -> None:
        scene = self.scene
        if OUR_TOPIC not in {scene.registered.topic_id, scene.config.topic_id}:
            return
        for each in headers:
            scene.append(code, each, stress=stress, target=only_for)

    @rule(seconds=st.sampled_from([1.0, 5.0, 30.0, 1_000.0]))
    def pass_time(self, seconds: float) -> None:
        scene = self.scene
        scene.now += seconds
        if scene.known < scene.oldest_known():
            scene.follow(scene.oldest_known())
        if scene.lane is not None:
            scene.lane.expire(scene.now)

    # --- the configuration --------------------------------------------------------------------------------------

    @rule(code=st.sampled_from(["EC_PAID", "*"]), expression=EXPRESSION, from_beginning=st.booleans())
    def subscribe(self, code: str, expression: str | None, *, from_beginning: bool) -> None:
        scene = self.scene
        scene.make()
        if len(scene.registered.subscriptions) < 3:
            scene.subscribe(code, expression, from_beginning=from_beginning)

    @precondition(lambda self: self.scene.registered.subscriptions)
    @rule(data=st.data(), kind=st.sampled_from(["pause", "pause", "expression", "delete"]), expression=EXPRESSION)
    def change_a_subscription(self, data: st.DataObject, kind: str, expression: str | None) -> None:
        scene = self.scene
        chosen = data.draw(st.sampled_from(sorted(scene.registered.subscriptions)))
        if kind == "delete":
            scene.unsubscribe(chosen)
        elif kind == "pause":
            scene.update(chosen, paused=not scene.registered.subscriptions[chosen].paused)
        else:
            scene.update(chosen, expression=expression, mode="DIRECT" if expression is None else "HEADER")

    @rule(what=st.sampled_from(["nothing", "nothing", "group", "group", "topic"]), is_made_again=st.booleans())
    def delete(self, what: str, *, is_made_again: bool) -> None:
        if what == "group":
            self.scene.delete_group()
        elif what == "topic":
            self.scene.delete_topic()
        if is_made_again:
            self.scene.make()

    @rule(is_allowed=st.booleans(), is_refused=st.booleans())
    def change_what_stress_it_sees(self, *, is_allowed: bool, is_refused: bool) -> None:
        self.scene.change(replace(self.scene.registered, is_allowed=is_allowed, is_refused=is_refused))

    @rule(data=st.data())
    def follow(self, data: st.DataObject) -> None:
        scene = self.scene
        scene.follow(data.draw(st.integers(max(scene.known, scene.oldest_known()), len(scene.versions) - 1)))

    # --- delivery -----------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 10))
    def feed(self, count: int) -> None:
        self.scene.feed(count)

    @rule(
        code=CODES,
        headers=st.lists(HEADERS, max_size=3),
        is_stress=st.sampled_from([False, False, True]),
        is_new_known=st.booleans(),
        verdicts=st.lists(st.sampled_from([Verdict.ACK, Verdict.ACK, Verdict.ACK, *Verdict]), max_size=8),
        is_stored=st.sampled_from([True, True, False]),
    )
    def work(
        self,
        code: str,
        headers: list[dict[str, str]],
        verdicts: list[Verdict],
        *,
        is_stress: bool,
        is_new_known: bool,
        is_stored: bool,
    ) -> None:
        """Everything once, in the usual order: single steps alone seldom meet."""
        scene = self.scene
        if headers:
            self.publish(code, headers, stress=is_stress, only_for=None)
        if is_new_known:
            scene.follow(len(scene.versions) - 1)
        scene.feed(10)
        scene.fetch()
        for (offset, attempt), verdict in zip(scene.take(len(verdicts)), verdicts, strict=False):
            scene.answer(offset, attempt, verdict)
        if is_stored:
            scene.checkpoint(is_committed=True)

    @rule(is_committed=st.sampled_from([True, True, False]))
    def checkpoint(self, *, is_committed: bool) -> None:
        self.scene.checkpoint(is_committed=is_committed)

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        scene = self.scene
        scene.crash(data.draw(st.integers(scene.oldest_known(), len(scene.versions) - 1)))

    # --- operators ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.scene.store.end > 0)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        self.scene.reset_to(data.draw(st.integers(0, self.scene.store.end)))

    @precondition(lambda self: self.scene.letters)
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        self.scene.purge(data.draw(st.sampled_from(sorted(self.scene.letters))))

    @precondition(lambda self: self.scene.lane is not None and self.scene.store.end > 0)
    @rule(
        data=st.data(),
        code=CODES,
        headers=st.lists(HEADERS, max_size=4),
        is_used=st.sampled_from([False, False, True]),
    )
    def lose_the_end(self, data: st.DataObject, code: str, headers: list[dict[str, str]], *, is_used: bool) -> None:
        if is_used:
            self.scene.lose_end(data.draw(st.integers(0, self.scene.store.end - 1)))
            self.publish(code, headers or [{}], stress=False, only_for=None)

    # --- what holds ---------------------------------------------------------------------------------------------

    @invariant()
    def the_status_is_what_became_of_each(self) -> None:
        for offset in range(self.scene.store.end):
            self.check(offset, is_asked=False)
            self.check(offset, is_asked=True)

    def check(self, offset: int, *, is_asked: bool) -> None:
        scene = self.scene
        facts = scene.facts(offset, is_asked=is_asked)
        status = decide(facts)
        if scene.had_namesakes:
            assert status == decide(scene.facts(offset, is_asked=is_asked, only_ours=True))
        message = scene.store.log[offset].message
        if message.target_group not in {None, KEY.group_id}:
            assert told(status) == {(State.NOT_MATCHED, Why.FOR_ANOTHER_GROUP)}
        elif facts.stand is not None and facts.stand.stand is Stand.IN_FLIGHT:
            assert told(status) == {(State.IN_FLIGHT, None)}
        elif status.state is State.DELIVERED and status.basis is Basis.ROWS:
            assert offset in scene.acknowledged, "the trace says so of what was before a reset"
        elif facts.ended is not None and (facts.rows.waiting is not None or not facts.rows.is_settled):
            self.check_ended(offset, facts, status)
        elif facts.rows.waiting is not None:
            state = State.SHELVED if scene.store.rows[offset].shelved_by else State.RETRYING
            assert told(status) == {(state, None)}
        elif not facts.rows.is_settled:
            self.check_unsettled(offset, status, facts.stand)
        elif offset in scene.fates:
            self.check_settled(status, scene.fates[offset])
        elif scene.lost_from is not None and offset >= scene.lost_from:
            # It was never read. Where the log is as long again as it was, only dead letters tell that it is another.
            is_told = facts.rows.is_beyond or facts.replaces_lost
            assert (State.UNKNOWN, None) in told(status) or not is_told
        else:
            assert any(state is State.NOT_MATCHED and why in NEVER_READ for state, why in told(status))
        if len(facts.moments) == 1 and not scene.resets and not scene.purges and not message.stress:
            assert status.is_certain or facts.stand is not None, "nothing has ever changed"

    def check_ended(self, offset: int, facts: GroupFacts, status: GroupStatus) -> None:
        """Nobody is handed it any more, but by brokers that have not heard of that."""
        assert facts.ended is not None
        if facts.rows.waiting is not None:
            assert (status.state, status.why) == (State.NOT_MATCHED, facts.ended.why)
        elif facts.stand is not None and facts.stand.stand is Stand.SETTLED:
            self.check_settled(status, self.scene.in_memory[offset])
        else:
            assert status.state is State.NOT_MATCHED
        asked = any(why is facts.ended.why for _, why in told(status))
        if self.scene.lane is not None and facts.stand is None and asked:
            assert (State.PENDING, None) in told(status)

    def check_unsettled(self, offset: int, status: GroupStatus, stand: MessageStand | None) -> None:
        if stand is None or stand.stand is Stand.UNREAD:
            assert status.state in {State.PENDING, State.NOT_MATCHED}
        elif stand.stand is Stand.READY:
            assert told(status) <= {(State.PENDING, None), (State.NOT_MATCHED, Why.STRESS_NOT_ALLOWED)}
            assert status.is_certain
        elif stand.stand is Stand.SETTLED:
            self.check_settled(status, self.scene.in_memory[offset])
        else:
            state = State.SHELVED if stand.stand is Stand.SHELVED else State.RETRYING
            assert told(status) == {(state, None)}

    def check_settled(self, status: GroupStatus, fate: Fate) -> None:
        assert fate in told(status) or same(fate) in told(status), f"it is {fate}, and not {status}"

    # --- the end ------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """What was told to come comes, where nothing is changed any more."""
        scene = self.scene
        scene.follow(len(scene.versions) - 1)
        scene.checkpoint(is_committed=True)
        end = scene.store.end
        told_before = [
            (offset, told(decide(scene.facts(offset, is_asked=is_asked))))
            for offset in range(end)
            for is_asked in (False, True)
            if not scene.facts(offset).rows.is_settled and offset not in scene.store.rows
        ]
        if scene.lane is None:
            return
        for _ in range(4 * end + 4):
            scene.feed(10)
            scene.fetch()
            for offset, attempt in scene.take(10):
                scene.answer(offset, attempt, Verdict.ACK)
            self.pass_time(40.0)
            scene.checkpoint(is_committed=True)
        for offset, expected in told_before:
            if expected & {(State.IN_FLIGHT, None), (State.RETRYING, None), (State.SHELVED, None)}:
                continue
            if offset in scene.store.rows:
                assert scene.store.rows[offset].shelved_by
                assert (State.PENDING, None) in expected
                continue
            fate = scene.fates[offset]
            # Or an instance had it already, and did not answer as often as it may.
            is_handed_out = fate[0] in {State.DELIVERED, State.DEAD_LETTER}
            deleted = {(State.NOT_MATCHED, Why.SUBSCRIPTION_DELETED)} if fate[1] in NEVER_READ else set()
            came = {fate, same(fate), *deleted, *({(State.PENDING, None)} if is_handed_out else ())}
            assert came & expected, f"{offset} came to {fate}, and was to come to {expected}"
        self.the_status_is_what_became_of_each()


StatusMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("STATUS_HISTORIES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestStatusHistories = StatusMachine.TestCase
