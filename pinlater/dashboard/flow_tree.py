"""The stages of a flow as a tree, with how full each is. Pure.

How many items a stage will have is estimated: those that it has, and for each item of its parent that has not ended as
many as one that succeeded has made so far. So a bar shows from the beginning how much is to come, and does not run
backwards when children are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pinlater.model.flow_words import AppletKind, FlowState, FlowStatus, StageStatus

LEAST_WIDTH = 0.8
"""Of a bar, in percent: that of what is there, however few that are."""

_KINDS = ("succeeded", "failed", "queued", "waiting")


class Segment(NamedTuple):
    """A part of a bar, in percent of it."""

    kind: str
    begin: float
    width: float


@dataclass(slots=True)
class StageNode:
    """A stage, and those below it. `expected`: how many items it will have, about; `queued` are in its queue or with a
    worker, `waiting` in the database, and `to_come` are not made yet. `is_over`: its flow is.
    """

    status: StageStatus
    expected: int
    children: list[StageNode] = field(default_factory=list)
    is_over: bool = False

    @property
    def name(self) -> str:
        return self.status.stage.name

    @property
    def ended(self) -> int:
        return self.status.succeeded + self.status.failed

    @property
    def queued(self) -> int:
        return min(self.status.queued, self.status.pending)

    @property
    def waiting(self) -> int:
        return self.status.pending - self.queued

    @property
    def to_come(self) -> int:
        return self.expected - self.status.items

    @property
    def percent(self) -> int:
        return _percent(self.ended, self.expected, is_whole=self.status.is_complete)

    @property
    def takes_items(self) -> bool:
        """Callers may add items to it, and seal it."""
        stage = self.status.stage
        return not self.status.is_sealed and (not stage.parent or stage.keeps_open)

    @property
    def state(self) -> tuple[str, str]:
        """How it is, in words, and the kind of that: good, bad, held or ""."""
        status = self.status
        if status.applet_errors:
            return ("ended", "held") if self.is_over else ("stuck", "bad")
        if status.is_complete:
            return "complete", "held" if status.failed else "good"
        if status.pending:
            return "running", "run"
        return ("open", "") if self.takes_items else ("waits for its parent", "")

    @property
    def made_by(self) -> str:
        """What makes its items, in words; "" where callers add them."""
        applet, parent = self.status.stage.applet, self.status.stage.parent
        if not parent:
            return ""
        match applet.kind:
            case AppletKind.MAP:
                return applet.expression
            case AppletKind.LIST:
                return f"one item for each element of a result of {parent}"
            case AppletKind.JOB:
                return f"what the job {applet.job} in queue {applet.queue} returns, for each item of {parent}"
        return f"payload and result of each item of {parent}"

    def segments(self) -> list[Segment]:
        """Of its bar: all kinds, in order, whatever their number, so that a bar which grows can be followed."""
        return _segments((self.status.succeeded, self.status.failed, self.queued, self.waiting), self.expected)

    def walk(self) -> Iterator[StageNode]:
        """It, and those below it, each parent before its children."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(slots=True)
class FlowTree:
    """All stages of a flow, and the sums over them."""

    flow: FlowStatus
    roots: list[StageNode]

    @classmethod
    def of(cls, flow: FlowStatus) -> FlowTree:
        nodes: dict[str, StageNode] = {}
        roots: list[StageNode] = []
        for status in flow.stages:  # a parent stands before its children
            parent = nodes.get(status.stage.parent)
            is_over, to_come = flow.completed_ms is not None, 0 if parent is None else _to_come(parent, status)
            node = StageNode(status, status.items + (0 if is_over else to_come), is_over=is_over)
            nodes[node.name] = node
            (roots if parent is None else parent.children).append(node)
        return cls(flow, roots)

    @property
    def nodes(self) -> list[StageNode]:
        return [node for root in self.roots for node in root.walk()]

    def total(self, name: str) -> int:
        """Items of one kind over all stages, as "succeeded" or "to_come"."""
        return sum(getattr(node if hasattr(node, name) else node.status, name) for node in self.nodes)

    @property
    def percent(self) -> int:
        return _percent(self.total("ended"), self.total("expected"), is_whole=self.is_over)

    def segments(self) -> list[Segment]:
        return _segments([self.total(kind) for kind in _KINDS], self.total("expected"))

    @property
    def is_over(self) -> bool:
        return self.flow.completed_ms is not None

    @property
    def state(self) -> tuple[str, str]:
        """One that was cancelled goes on until nothing of it runs."""
        flow = self.flow
        if flow.state is FlowState.CANCELLED:
            return ("cancelled", "held") if self.is_over else ("stopping", "held")
        if flow.state is FlowState.COMPLETE:
            return "complete", "good"
        if flow.is_stuck:
            return "stuck", "bad"
        return ("in trouble", "bad") if flow.troubles else ("running", "run")

    @property
    def queues(self) -> list[str]:
        return sorted({status.stage.queue for status in self.flow.stages})


def _to_come(parent: StageNode, status: StageStatus) -> int:
    """Items of a stage that its parent's will make, about."""
    of = parent.status
    left = parent.expected - parent.ended + of.applet_errors
    if of.is_complete or left <= 0:
        return 0
    done = of.succeeded - of.applet_errors
    return round(left * status.items / done) if done > 0 else left


def _percent(ended: int, expected: int, *, is_whole: bool) -> int:
    """Rounded down, and 100 only of what is complete."""
    if is_whole:
        return 100
    return min(99, 100 * ended // expected) if expected else 0


def _segments(numbers: Sequence[int], whole: int) -> list[Segment]:
    widths = [max(LEAST_WIDTH, 100 * number / whole) if number else 0.0 for number in numbers]
    too_much = sum(widths) - 100
    if too_much > 0:
        widths[widths.index(max(widths))] -= too_much
    begins = [sum(widths[:at]) for at in range(len(widths))]
    return [
        Segment(kind, round(begin, 2), round(width, 2))
        for kind, begin, width in zip(_KINDS, begins, widths, strict=True)
    ]
