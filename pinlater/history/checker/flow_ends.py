"""Flows, judged by what answers say of them and of their items.

An item that has ended stays as it is, and so does a flow that is over: until somebody tries items again. A flow is over
when all its stages are sealed, none of their items is pending, and none that was added to a stage without a parent is
missing. Numbers name one item each, and a dedupe key one item of its stage.

A claim on an item's job counts as one failure at most; and as one at least where a worker got it, did not give it back,
and the job was handed out again before its item had ended.

Not judged: what applets make, the delays between tries, and of flows of which items were tried again all but counts;
nor failures of items whose jobs may have moved to another shard, or were changed by an operator.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from pinlater.history.checker.claim_observations import ObservedClaim
from pinlater.history.checker.history_judge import Handling, HistoryJudge, OpenCall, queue_in
from pinlater.history.checker.observations import CallMark
from pinlater.history.checker.verdict import Violation

_RUNNING = 0
_PENDING, _SUCCEEDED, _FAILED = range(3)
_STATE_WORDS = ("pending", "succeeded", "failed")


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer, and what it says of an item or a flow."""

    begin_ms: float
    end_ms: float
    mark: CallMark
    content: Any = None

    def is_before(self, other: _Answer) -> bool:
        return self.mark.ended < other.mark.began and self.end_ms <= other.begin_ms


class _Claim(NamedTuple):
    """A hand-out of an item's job. `is_held`: its end is a failure, unless the worker gives it back."""

    name: str
    answer: _Answer
    is_held: bool
    expires_ms: float


@dataclass(slots=True)
class _FlowKnown:
    """What is known of one flow."""

    roots: frozenset[str] = frozenset()
    """The stages without a parent; empty: not known."""

    added: dict[str, dict[int, _Answer]] = field(default_factory=dict)
    """By stage, the numbers of items that were added."""

    keys: dict[tuple[str, str], tuple[int, _Answer]] = field(default_factory=dict)
    sealed: dict[str, _Answer] = field(default_factory=dict)
    over: _Answer | None = None
    ended: dict[int, _Answer] = field(default_factory=dict)
    """Items that were seen to have ended, and the fields by which they did."""

    was_retried: bool = False


class FlowEnds:
    """Listens to the calls about flows."""

    def __init__(self, judge: HistoryJudge) -> None:
        self._judge = judge
        self._flows: dict[str, _FlowKnown] = {}
        self._flow_of: dict[int, str] = {}
        self._claims: dict[str, list[_Claim]] = {}
        self._given_back: set[tuple[str, str]] = set()
        """Jobs and claims; where it came too late they have failed before."""

        self._succeeded: set[tuple[str, str]] = set()

        self._unseen_ms: list[float] = []
        """When calls began that may have claimed a job for nobody."""

        self._tried: dict[int, tuple[_Answer, Mapping[str, Any]]] = {}
        """Items with jobs, as they were shown last."""

        judge.at_the_end(self._judge_failures)
        judge.handle(
            {
                "createFlow": Handling(self._created, None, self._creating),
                "addFlowItems": Handling(self._items_added),
                "sealStage": Handling(self._sealed),
                "getFlow": Handling(self._shown),
                "getFlows": Handling(self._all_shown),
                "getFlowItems": Handling(self._items_shown),
                "cancelFlow": Handling(self._shown),
                "resumeFlow": Handling(self._shown, None, self._may_open),
                "retryFlowItems": Handling(self._retried, None, self._may_open),
                "deleteFlow": Handling(self._nothing),
            }
        )

    def _flow(self, flow_id: str) -> _FlowKnown:
        return self._flows.setdefault(flow_id, _FlowKnown())

    # -- claims ------------------------------------------------------------------------------------------------------

    def handed_out(self, call: OpenCall, descriptor: str, claim: ObservedClaim) -> None:
        if self._judge.queue(queue_in(descriptor)).has_items:
            answer = _Answer(call.begin_ms, call.end_ms, call.mark)
            seen = _Claim(claim.claim, answer, claim.is_held, claim.expires_ms or -inf)
            self._claims.setdefault(descriptor, []).append(seen)

    def not_handed_out(self, call: OpenCall) -> None:
        self._unseen_ms.append(call.begin_ms)

    def given_back(self, descriptor: str, claim: str) -> None:
        self._given_back.add((descriptor, claim))

    def succeeded(self, call: OpenCall, descriptor: str, claim: str) -> None:
        """What was acked in time under a claim that stood has not failed under it."""
        for each in self._claims.get(descriptor, ()):
            if each.name == claim and each.is_held and call.end_ms + self._judge.tolerance_ms < each.expires_ms:
                self._succeeded.add((descriptor, claim))

    def _judge_failures(self) -> None:
        self._unseen_ms.sort()
        for number, (seen, item) in self._tried.items():
            flow_id, descriptor = item.get("flowId", ""), item.get("job", "")
            if self._flow(flow_id).was_retried or self._may_have_others(descriptor):
                continue
            failures = sum(bool(each.get("worker")) for each in item.get("failures", ()))
            claims = [each for each in self._claims.get(descriptor, ()) if each.answer.begin_ms <= seen.end_ms]
            may_fail = [each for each in claims if (descriptor, each.name) not in self._succeeded]
            if failures > len(may_fail) + bisect_right(self._unseen_ms, seen.end_ms):
                text = f"its item {number} has failed {failures} times, and {len(may_fail)} claims of it at most"
                self._broken(flow_id, text, *(each.answer for each in may_fail), seen)
            ended_ms = item.get("endedMillis", inf) - self._judge.tolerance_ms
            known = [each for each in claims if each.answer.is_before(seen) and each.answer.end_ms < ended_ms]
            # an answer that came when its claim was over may be that of a claim before the others
            over = [each for each in known if each.answer.end_ms + self._judge.tolerance_ms < each.expires_ms][:-1]
            held = [each for each in over if each.is_held and (descriptor, each.name) not in self._given_back]
            failed = [each for each in held if (descriptor, each.name) not in self._succeeded]
            if failures < len(failed):
                text = f"its item {number} has failed {failures} times, and {len(failed)} claims of it were over"
                self._broken(flow_id, text, *(each.answer for each in failed), seen)

    def _may_have_others(self, descriptor: str) -> bool:
        """Whether other jobs may have carried its item."""
        return self._judge.may_move(descriptor) or self._judge.queue(queue_in(descriptor)).was_operated

    # -- flows -------------------------------------------------------------------------------------------------------

    def _nothing(self, call: OpenCall, answer: Any) -> None:
        """What is gone is not found any more."""

    def _creating(self, call: OpenCall) -> None:
        """From now on the queues of its stages may have items, whether or not a flow was there before."""
        for stage in call.request.get("stages") or ():
            queue = self._judge.queue(stage.get("queueName", ""))
            queue.has_other_sources = queue.has_items = True
            queue.changed("flow_items", "true", call.begin_ms, inf)

    def _created(self, call: OpenCall, answer: Any) -> None:
        if isinstance(answer, dict) and answer.get("isNew"):
            stages = call.request.get("stages") or ()
            self._flow(answer.get("id", "")).roots = frozenset(
                stage.get("name", "") for stage in stages if not stage.get("parent")
            )

    def _items_added(self, call: OpenCall, answer: Any) -> None:
        request = call.request
        flow_id, stage = request.get("flowId", ""), request.get("stage", "")
        flow, items = self._flow(flow_id), request.get("items") or ()
        numbers = answer.get("numbers", ()) if isinstance(answer, dict) else ()
        seen = _Answer(call.begin_ms, call.end_ms, call.mark)
        sealed = flow.sealed.get(stage)
        is_new = any(not item.get("dedupeKey") for item in items)
        if sealed is not None and sealed.is_before(seen) and is_new and not (flow.was_retried or call.is_resent):
            self._broken(flow_id, f"items were added to its stage {stage} when that was sealed", sealed, seen)
        added = flow.added.setdefault(stage, {})
        for item, number in zip(items, numbers, strict=False):
            self._numbered(flow_id, number, seen)
            key = item.get("dedupeKey")
            if not key:
                if number in added and not call.is_resent:
                    self._broken(
                        flow_id, f"two items of its stage {stage} have the number {number}", added[number], seen
                    )
            elif stage in flow.roots:
                first, before = flow.keys.setdefault((stage, key), (number, seen))
                if first != number:
                    text = f"the key {key!r} of its stage {stage} is that of the items {first} and {number}"
                    self._broken(flow_id, text, before, seen)
            added.setdefault(number, seen)
        if request.get("seal"):
            flow.sealed.setdefault(stage, seen)

    def _numbered(self, flow_id: str, number: int, seen: _Answer) -> None:
        other = self._flow_of.setdefault(number, flow_id)
        if other != flow_id:
            self._broken(flow_id, f"its item {number} is one of the flow {other} too", seen)

    def _sealed(self, call: OpenCall, answer: Any) -> None:
        flow, stage = self._flow(call.request.get("flowId", "")), call.request.get("stage") or ""
        seen = _Answer(call.begin_ms, call.end_ms, call.mark)
        for name in [stage] if stage else flow.roots:
            flow.sealed.setdefault(name, seen)

    def _may_open(self, call: OpenCall) -> None:
        """A flow that is over may be open again from here on."""
        flow = self._flow(call.request.get("flowId", ""))
        flow.was_retried = True
        flow.over = None
        flow.ended.clear()

    def _retried(self, call: OpenCall, answer: Any) -> None:
        if isinstance(answer, dict):
            self._see(call, answer.get("flow") or {})

    def _shown(self, call: OpenCall, answer: Any) -> None:
        if isinstance(answer, dict):
            self._see(call, answer)

    def _all_shown(self, call: OpenCall, answer: Any) -> None:
        for status in answer.get("flows", ()) if isinstance(answer, dict) else ():
            self._see(call, status)

    def _see(self, call: OpenCall, status: Mapping[str, Any]) -> None:
        flow_id, state = status.get("id", ""), status.get("state", _RUNNING)
        flow, stages = self._flow(flow_id), status.get("stages") or ()
        content = state, status.get("completedMillis"), status.get("ends", 0)
        seen = _Answer(call.begin_ms, call.end_ms, call.mark, content)
        for stage in stages:
            self._judge_stage(flow, flow_id, stage, seen, is_over=state != _RUNNING)
        if state == _RUNNING:
            if flow.over is not None and flow.over.is_before(seen):
                self._broken(flow_id, "it runs when it was over", flow.over, seen)
        elif flow.over is None:
            # a retry that was under way may come behind this answer
            flow.over = None if flow.was_retried else seen
        elif flow.over.content != content:
            self._broken(flow_id, f"its end is {content} when it was {flow.over.content}", flow.over, seen)

    def _judge_stage(
        self, flow: _FlowKnown, flow_id: str, status: Mapping[str, Any], seen: _Answer, *, is_over: bool
    ) -> None:
        name = (status.get("stage") or {}).get("name", "")
        items, pending = status.get("items", 0), status.get("pending", 0)
        ended = status.get("succeeded", 0) + status.get("failed", 0)
        if items != pending + ended:
            self._broken(flow_id, f"its stage {name} has {items} items, {pending} pending and {ended} ended", seen)
        if is_over and (pending or not status.get("isSealed")):
            self._broken(flow_id, f"it is over, and its stage {name} is not", seen)
        known = flow.added.get(name, {}) if name in flow.roots else {}
        there = [number for number, answer in known.items() if answer.is_before(seen)]
        if len(there) > items:
            added = known[there[-1]]
            self._broken(flow_id, f"its stage {name} has {items} items, and {len(there)} were added", added, seen)

    def _items_shown(self, call: OpenCall, answer: Any) -> None:
        for item in answer.get("items", ()) if isinstance(answer, dict) else ():
            flow_id, number = item.get("flowId", ""), item.get("number", 0)
            flow, state = self._flow(flow_id), item.get("state", _PENDING)
            result = item.get("result") if call.request.get("includeBody", True) else None
            seen = _Answer(call.begin_ms, call.end_ms, call.mark, (state, item.get("endedMillis"), result))
            self._numbered(flow_id, number, seen)
            if item.get("job"):
                self._tried[number] = seen, item
            before = flow.ended.get(number)
            if before is None:
                if state in (_SUCCEEDED, _FAILED) and not flow.was_retried:
                    flow.ended[number] = seen
            elif before.is_before(seen) and not _agrees(before.content, seen.content):
                word = _STATE_WORDS[state] if state < len(_STATE_WORDS) else state
                text = f"its item {number} is {word} when it had {_STATE_WORDS[before.content[0]]}"
                self._broken(flow_id, text, before, seen)

    def _broken(self, flow_id: str, text: str, *shown: _Answer) -> None:
        if self._judge.has_losses:
            return  # the database of flows may have been set back too
        part = tuple(self._judge.line(each.begin_ms, each.end_ms, each.mark, f"flow {flow_id}") for each in shown)
        numbers = tuple(each.mark.number for each in shown)
        at_ms = shown[-1].end_ms if shown else inf
        self._judge.violated(Violation("flow", f"flow {flow_id}", text, at_ms, part, numbers))


def _agrees(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether both say the same, as far as both say it."""
    return all(a == b or a is None or b is None for a, b in zip(one, other, strict=True))
