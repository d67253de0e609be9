"""A model of one flow beside its database: whatever happens in which order, both say the same of every item."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pinlater.errors import StageSealed
from pinlater.flows.ends import EndOutcome, ItemEnd, WantedItems
from pinlater.model.flow_words import Applet, AppletKind, FlowState, ItemState, NewFlow, NewItem, OnFailure, Stage
from tests.flows.stand import START_MS, check_counters, feed, opened

BREAKS = "result.bad && abs(result.bad) || result.many"
STAGES = [
    Stage("one", "a", "q1", max_failures=1),
    Stage(
        "two", "b", "q2", "one", Applet(AppletKind.MAP, "result.bad && abs(result.bad) || result.many"), max_failures=0
    ),
    Stage("three", "c", "q3", "two"),
]
MENDED = "result.many"
RESULTS = {b'{"many":[1,2]}': 2, b'{"many":[]}': 0, b"null": 0, b'{"many":[1],"bad":"no number"}': 1}
NAMES = [stage.name for stage in STAGES]


@dataclass
class ModelItem:
    stage: int
    state: ItemState = ItemState.PENDING
    claims: list[str] = field(default_factory=list)
    tried_before: int = 0
    """So many of its failures count no more, as it was retried."""

    parent: int = 0
    is_broken: bool = False
    """Its children could not be made, and still can."""

    is_given_up: bool = False
    """They could not, and nobody waits for them any more; it stays counted."""


class FlowModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.url = f"sqlite:///{self.stack.enter_context(tempfile.TemporaryDirectory())}/flows.db"
        self.database = self.stack.enter_context(opened(self.url))
        self.flow_id = ""
        self.on_failure = OnFailure.GO_ON
        self.stopped = [False] * 3
        self.is_mended = False
        self.items: dict[int, ModelItem] = {}
        self.sealed = [False] * 3
        self.is_cancelled = False

    @initialize(on_failure=st.sampled_from(OnFailure))
    def create(self, on_failure: OnFailure) -> None:
        self.on_failure = on_failure
        self.flow_id = self.database.create(NewFlow("model", STAGES, on_failure=on_failure), START_MS).id

    def teardown(self) -> None:
        self.stack.close()

    def settle(self) -> None:
        for index in (1, 2):
            self.sealed[index] |= self.sealed[index - 1] and not self.keeps_open(index - 1)

    def keeps_open(self, *stages: int) -> bool:
        """Something of these stages has not ended."""
        found = [item for item in self.items.values() if item.stage in stages]
        return any(item.state is ItemState.PENDING or item.is_broken for item in found)

    def stop(self, stages: Sequence[int], limit: int) -> None:
        """All that is pending of these stages fails, in steps."""
        while not self.database.stop(self.flow_id, START_MS, limit)[1]:
            pass
        for stage in stages:
            self.stopped[stage] = self.sealed[stage] = True
        for item in self.items.values():
            if self.stopped[item.stage]:
                item.is_broken, item.is_given_up = False, item.is_broken or item.is_given_up
                if item.state is ItemState.PENDING:
                    item.state = ItemState.FAILED
                    item.claims.append("stopped")

    def children(self, stage: int, parents: Sequence[int]) -> None:
        """Learn the numbers of children: they are the newest of their stage."""
        if stage > 2 or self.stopped[stage]:
            return
        found = self.database.items(self.flow_id, NAMES[stage], None, "", (), 0, 1_000)[0]
        fresh = [item.number for item in found if item.number not in self.items]
        assert len(fresh) == len(parents)
        for number, parent in zip(sorted(fresh), parents, strict=True):
            self.items[number] = ModelItem(stage, parent=parent)

    @rule(stage=st.integers(0, 2), count=st.integers(0, 3), seal=st.booleans())
    def add(self, stage: int, count: int, seal: bool) -> None:
        new = [NewItem(b"1")] * count
        if self.sealed[stage]:
            with pytest.raises(StageSealed):
                self.database.add(self.flow_id, NAMES[stage], new, START_MS, seal=seal)
            return
        numbers = self.database.add(self.flow_id, NAMES[stage], new, START_MS, seal=seal)
        self.items.update((number, ModelItem(stage)) for number in numbers)
        self.sealed[stage] |= seal
        self.settle()

    @rule(stage=st.integers(0, 2))
    def seal(self, stage: int) -> None:
        self.database.seal(self.flow_id, NAMES[stage], START_MS)
        self.sealed[stage] = True
        self.settle()

    @rule()
    def put_into_queues(self) -> None:
        feed(self.database)

    @rule()
    def lose_the_queues(self) -> None:
        held, _ = self.database.held((0, 0, 0), START_MS + 1, 1_000)
        assert self.database.lost({each.number: each.job for each in held}) == len(held)

    @rule(data=st.data(), result=st.sampled_from(sorted(RESULTS)))
    def succeed(self, data: st.DataObject, result: bytes) -> None:
        if not self.items:
            return
        number = data.draw(st.sampled_from(sorted(self.items)))
        item = self.items[number]
        told = self.database.record([ItemEnd("", result, number=number)], START_MS).ends[0].outcome
        if item.state is not ItemState.PENDING:
            assert told is EndOutcome.ENDED
            return
        assert told is EndOutcome.SUCCEEDED
        item.state = ItemState.SUCCEEDED
        if item.stage == 0 and b"bad" in result and not self.is_mended and not self.stopped[1]:
            item.is_broken = True
        else:
            self.children(item.stage + 1, [number] * {0: RESULTS[result], 1: 1, 2: 0}[item.stage])
        self.settle()

    @rule(mends=st.booleans())
    def resume(self, mends: bool) -> None:
        self.database.resume(self.flow_id, "two" if mends else "", MENDED if mends else "", START_MS)
        self.is_mended |= mends
        if self.is_mended:
            broken = sorted(number for number, item in self.items.items() if item.is_broken)
            for number in broken:
                self.items[number].is_broken = False
            self.children(1, broken)
            self.settle()

    @rule(data=st.data(), claim=st.sampled_from(["", "c1", "c2"]), limit=st.integers(1, 20))
    def fail(self, data: st.DataObject, claim: str, limit: int) -> None:
        if not self.items:
            return
        number = data.draw(st.sampled_from(sorted(self.items)))
        item = self.items[number]
        recorded = self.database.record([ItemEnd("", None, claim, number=number)], START_MS)
        told = recorded.ends[0].outcome
        had_ended = item.state is not ItemState.PENDING
        if item.state is ItemState.PENDING and not (claim and claim in item.claims):
            item.claims.append(claim)
            if len(item.claims) - item.tried_before > STAGES[item.stage].max_failures:
                item.state = ItemState.FAILED
        expected = {ItemState.PENDING: EndOutcome.RETRY, ItemState.FAILED: EndOutcome.FAILED}
        assert told is expected.get(item.state, EndOutcome.ENDED)
        if not had_ended and item.state is ItemState.FAILED and self.on_failure is not OnFailure.GO_ON:
            stages = range(3) if self.on_failure is OnFailure.STOP_FLOW else [item.stage]
            self.stop([stage for stage in stages if not self.stopped[stage]], limit)
        self.settle()

    @rule(data=st.data(), all_failed=st.booleans(), and_follows=st.booleans())
    def retry(self, data: st.DataObject, all_failed: bool, and_follows: bool) -> None:
        failed = [number for number, item in self.items.items() if item.state is ItemState.FAILED]
        broken = [number for number, item in self.items.items() if item.is_broken or item.is_given_up]
        named: list[int] = []
        if self.items and not all_failed:
            named = data.draw(st.lists(st.sampled_from(sorted(self.items)), min_size=1, max_size=4, unique=True))
        wanted = named or [*failed, *broken]
        came = self.database.retry(
            self.flow_id, WantedItems(numbers=named, until_ms=START_MS, and_follows=and_follows), START_MS
        )
        followers = self.followers(named) if and_follows else set()
        again, made = set[int](), set[int]()
        for number in set(wanted) - followers:
            item = self.items[number]
            is_stopped = any(self.stopped[item.stage :])
            if item.state is ItemState.PENDING or (is_stopped and not and_follows):
                continue
            if item.state is ItemState.FAILED or (named and and_follows):
                again.add(number)
            elif number in broken:
                made.add(number)
        assert (came.retried, came.removed, set(came.broken)) == (len(again | made), len(followers), made)
        if again or made:
            self.reopen({self.items[number].stage for number in again | made})
        for number in followers:
            del self.items[number]
        for number in again:
            item = self.items[number]
            item.state, item.is_broken, item.is_given_up = ItemState.PENDING, False, False
            item.tried_before = len(item.claims)

    def followers(self, named: Sequence[int]) -> set[int]:
        found = {number for number, item in self.items.items() if item.parent in named}
        return found | (self.followers(sorted(found)) if found else set())

    def reopen(self, stages: set[int]) -> None:
        """Stages that only their parents' ends had sealed are open, and those that were stopped go on."""
        first = min(stages)
        for index in range(2, first, -1):
            if self.sealed[index - 1] and not self.keeps_open(index - 1):
                self.sealed[index] = False
        for index in range(first, 3):
            self.stopped[index] = False
            for item in self.items.values():
                if item.stage == index and item.is_given_up:
                    item.is_given_up, item.is_broken = False, True
        self.is_cancelled = False

    @rule(limit=st.integers(1, 20))
    def cancel(self, limit: int) -> None:
        if self.database.status(self.flow_id).completed_ms is None:
            self.is_cancelled = True
        self.database.cancel(self.flow_id, START_MS)
        if self.is_cancelled:
            self.stop(range(3), limit)

    @invariant()
    def says_the_same(self) -> None:
        status = self.database.status(self.flow_id)
        found = self.database.items(self.flow_id, "", None, "", (), 0, 1_000)[0]
        assert {item.number: (NAMES.index(item.stage), item.state, len(item.failures)) for item in found} == {
            number: (item.stage, item.state, len(item.claims)) for number, item in self.items.items()
        }
        assert [stage.is_sealed for stage in status.stages] == self.sealed
        broken = [item.stage for item in self.items.values() if item.is_broken or item.is_given_up]
        assert [stage.applet_errors for stage in status.stages] == [broken.count(stage) for stage in range(3)]
        is_over = all(self.sealed) and not self.keeps_open(0, 1, 2)
        over = FlowState.CANCELLED if self.is_cancelled else FlowState.COMPLETE
        assert status.state is (over if is_over else FlowState.RUNNING)
        assert (status.completed_ms is not None) == is_over
        check_counters(self.url)


TestFlowModel = FlowModel.TestCase
TestFlowModel.settings = settings(max_examples=40, stateful_step_count=20)
