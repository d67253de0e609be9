"""Ends of items, and items on their way to queues: plain data between the database of flows and the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from pinlater.model.flow_words import Applet, CompletionCallback, FlowStatus, RefusedItems, Stage


class MadeChildren(NamedTuple):
    """What the stage at `place` gets of an item, by this applet; or why that cannot be made."""

    place: int
    applet: Applet
    payloads: Sequence[bytes] = ()
    error: str = ""

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self.payloads))


class UnmadeChildren(NamedTuple):
    """Of an item that has succeeded: what is to be made of it, outside of a transaction, before its end is recorded; by
    which applet for the stage at each place. `flow`: its number.
    """

    flow: int
    payload: bytes
    result: bytes
    applets: Sequence[tuple[int, Applet]]


SeesBodies = Callable[[Collection[str]], bool]
"""Whether whoever asks may see the bodies of all these queues. What a worker said of an item may quote its payload, so
only such a caller is told why children could not be made.
"""


def sees_none(queues: Collection[str]) -> bool:
    return False


class ItemEnd(NamedTuple):
    """What is said of the job of an item. `result`: of a success; None for a failure, with its reason. `claim`: its
    claim, which counts once as a failure; "" where nobody says. `is_final`: a failure after which no retry is wanted.
    `number`, where not 0, names the item, and the job need not be known. `made`: its children, as far as they were
    made.
    """

    job: str
    result: bytes | None
    claim: str = ""
    worker: str = ""
    reason: str = ""
    is_final: bool = False
    number: int = 0
    made: Sequence[MadeChildren] = ()


class EndOutcome(IntEnum):
    """NO_ITEM: the job is none of a flow. ENDED: the item had ended before, and nothing has changed. RETRY: it failed,
    and is to be tried again from `retry_ms` on. UNMADE: nothing is recorded before its children are made. LATER: nor
    here, as those before it are all that one transaction reads and writes; it comes again.
    """

    NO_ITEM = 0
    SUCCEEDED = 1
    FAILED = 2
    RETRY = 3
    ENDED = 4
    UNMADE = 5
    LATER = 6


class RecordedEnd(NamedTuple):
    outcome: EndOutcome
    retry_ms: int = 0
    unmade: UnmadeChildren | None = None


class QueuedJob(NamedTuple):
    """The job of an item, in its queue."""

    number: int
    queue: str
    job: str


class Recorded(NamedTuple):
    """`ends`: an outcome for each, in order. `has_waiting`: items wait in the database that may come into their queues.
    `over`: the ids of flows that are over by this. `stopping`: those of which something is to be
    stopped.
    """

    ends: list[RecordedEnd]
    has_waiting: bool
    over: list[str]
    stopping: list[str]


class Resumed(NamedTuple):
    """`last`: the item behind which to go on, 0 for none. `over`: the ids of flows that are over by this. `unmade`:
    what is to be made first, by the numbers of items; then nothing has changed.
    """

    last: int
    over: list[str]
    unmade: Mapping[int, UnmadeChildren] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedItems:
    """Which items are to be retried: those of these numbers; or, where there are none, those that have failed by
    `until_ms`, of one stage where it is named. `and_follows`: what they have brought about is taken back first.
    """

    numbers: Sequence[int] = ()
    stage: str = ""
    until_ms: int = 0
    and_follows: bool = False


class RetriedItems(NamedTuple):
    """What a retry came to. `retried`: how many items; of `broken`, some of these, the children are still to be made.
    `removed`: how many had followed from them; `jobs`: those of the removed ones. `is_last`: no more are to be retried.
    """

    retried: int
    removed: int
    refused: Sequence[RefusedItems]
    broken: Sequence[int]
    jobs: Sequence[QueuedJob]
    is_last: bool


class WaitingItem(NamedTuple):
    """An item that is to come into its queue. `retry_ms`: not before this time. `group`: as its stage's template makes
    it.
    """

    number: int
    flow_id: str
    stage: Stage
    payload: bytes
    serialize_key: str
    failures: int
    retry_ms: int | None
    group: str = ""


class DueCallback(NamedTuple):
    """`flow`: its number in the database; `owner`: the identity that made it, "" where nobody was known."""

    flow: int
    id: str
    tries: int
    callback: CompletionCallback
    status: FlowStatus
    owner: str = ""
