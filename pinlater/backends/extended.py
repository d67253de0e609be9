"""The extended part that few jobs have, as the stores see it: keys, a request to stop, progress, an expiry, a result.

It lies apart from the job, so that other jobs cost nothing more. Three states of a store are not in the model: WAITING
(PENDING, behind another job of its serialize key), CANCELLED (FAILED, since it was to stop) and REPLAYED (FAILED, and
its dead letter was sent back); queries show them as PENDING and FAILED. `JobEnd` says what every end of such a job
does. The calls are those of `base.Shard`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from pinlater.model import BlockedChain as BlockedChain
from pinlater.model import ExtendedJob, LogLine
from pinlater.model import HeartbeatAnswer as HeartbeatAnswer


@dataclass(slots=True)
class HeartbeatRequest:
    """A sign of life of one claim; `fraction` and `text`, where not None, are the job's progress from now on.
    `log_lines` are added to its log, as lines of the attempt that runs.
    """

    priority: int
    id: int
    claim_descriptor: str
    fraction: float | None = None
    text: str | None = None
    log_lines: Sequence[LogLine] = ()


@dataclass(slots=True)
class RescheduleRequest:
    """A change of one PENDING job; None leaves a field as it is. A value of `only_if_updated_at_ms` must be that of the
    job, else it is CHANGED.
    """

    priority: int
    id: int
    run_after_ms: int | None = None
    body: bytes | None = None
    attempts_allowed: int | None = None
    only_if_updated_at_ms: int | None = None


@dataclass(slots=True)
class Offer:
    """One job of `enqueue_extended`.

    `slot`: the number that its key hashes to (0 to 4,095), kept for `key_slots`. `only_if_known`: this shard is where
    the key lived before the homes changed: take it only if its dedupe key or send id stands here, or its serialize key
    has a live job here. `takes_no_jobs`: and the shard is being emptied, say, so a live serialize key takes no further
    job either, and a job that runs gets no successor. `behind`: a shard id; where this serialize key has no job here
    yet, the job waits until `lift_barriers`. `mark`: the job is the firing of a schedule for one time; `schedule` is
    the name of its config entry, and marks, ASCII of one length, follow one another as their times do. Where a firing
    with that mark or a higher one was stored here before, it is KEPT, with a descriptor of "", also with
    `only_if_known`. The highest mark of a schedule (see `last_firings`) goes with the tombstone of its config entry.
    `by`: who enqueues, in whose name a running job is asked to stop.
    """

    job: ExtendedJob
    slot: int = 0
    only_if_known: bool = False
    takes_no_jobs: bool = False
    behind: str = ""
    schedule: str = ""
    mark: str = ""
    by: str = ""


class OfferOutcome(IntEnum):
    """What became of an offer. The first three are those of EnqueueOutcome."""

    STORED = 0
    KEPT = 1
    REPLACED = 2
    REJECTED = 3
    """The dedupe key is taken, and `on_duplicate` is REJECT; `descriptor` is the one that stands."""

    NOT_HERE = 4
    """`only_if_known`, and it is not known here. Nothing was stored."""

    CHAIN_HERE = 5
    """`takes_no_jobs`, and the serialize key has live jobs here. Nothing was stored."""

    DIFFERENT = 6
    """REPLACE, with another priority than the PENDING job that stands. Nothing was changed."""

    RUNS_HERE = 7
    """`takes_no_jobs`, and the job that would get a successor runs here. Nothing was stored."""


class Offered(NamedTuple):
    """What became of an offer, and the job that stands now. `ready_at_ms`: when that job may be handed out, where this
    step made it PENDING or changed its time; None: nothing new, or it waits for another one of its serialize key.
    """

    outcome: OfferOutcome
    descriptor: str = ""
    ready_at_ms: int | None = None


class KeyHolder(NamedTuple):
    """The job that a key names, and its successor: the newer job of the dedupe key that waits for its end; "": none."""

    descriptor: str
    successor: str = ""


def replaced_due_ms(wanted_ms: int, within_ms: int | None, created_at_ms: int, due_ms: int) -> int:
    """When a job is due that is replaced by one with that run_after. `within_ms` bounds how far it is postponed,
    counted from its first enqueue; one that stands later already stays where it is, or goes where the newer one wants
    it sooner.

    >>> replaced_due_ms(9_000, None, 1_000, 5_000), replaced_due_ms(9_000, 6_000, 1_000, 5_000)
    (9000, 7000)
    >>> replaced_due_ms(9_000, 2_000, 1_000, 5_000), replaced_due_ms(4_000, 2_000, 1_000, 5_000)
    (5000, 4000)
    """
    return wanted_ms if within_ms is None else min(wanted_ms, max(created_at_ms + within_ms, due_ms))


class KeyWindow(NamedTuple):
    """The entry of a dedupe key or send id whose job has ended, until it counts no more. `text` means something to the
    stores of this version alone (all kinds of store have the same form), `name` is unique among the windows of a shard.
    """

    name: str
    slot: int
    until_ms: int
    text: str


class Barrier(NamedTuple):
    """The jobs of a serialize key here wait until its jobs on another shard have ended."""

    serialize_key: str
    shard_id: str


class JobEnd:
    """What the end of an extended job does, in the very step that ends it, whichever call that is.

    Ends are: SUCCEEDED, FAILED (a final ack, an expired or released claim, an expiry) and CANCELLED, which the job
    keeps as its state; and removal: `cancel`, `delete_jobs`, `delete_listed`, the deletion of its queue (within
    2 s, by `prune`), `replay` of a letter.

      * Serialize key: the job leaves its chain. The next one by place is the first now: WAITING to PENDING with its
        run_after as it is, and told as a job that became PENDING. Going back to PENDING (a retry, a requeue, a lapsed
        claim with attempts left) leaves the job the first, whatever its run_after is then, and so does a change of its
        run_after (REPLACE, `reschedule`). `retry_failed`, `retry_listed` and `replay` give a new place at the end.
      * Dedupe key: its entry stands until `dedupe_for_ms` after the end, or as long as the job is kept (WHILE_KEPT),
        and in any case names the job until that is removed. It counts before that time, not at it. A job that is
        removed otherwise than by `prune` takes its entry with it; `prune`, and an ack that does not keep the job, leave
        the entry until its window has passed. A later job of the key, also one that is retried, takes the entry over.
      * Successor: where a newer job of the dedupe key waits for a running one, the key is that job's from the end on,
        and no window of the one that ended counts. It goes from WAITING to PENDING as the next one of a chain does,
        unless it waits in a chain itself. While it waits, the running job does not go back to PENDING: a failed ack
        with attempts left, an expired or released claim, a requeue or a checkpoint that would send it there ends it as
        CANCELLED. A last or permanent failure is FAILED all the same. A successor that ends or is removed while it
        waits leaves the running job as it was before.
      * Send id: its entry stands until SEND_ID_KEPT_MS after the end, also after a removal. A retry while it
        stands lets it stand until the next end.
      * A job that was to stop (`cancel` with `by`) and does not end as SUCCEEDED ends as CANCELLED: also where it would
        have been retried or requeued. No attempts remain; a claim that expired counts as a crash, and writes its line.
        It is no dead letter, and counts as FAILED for keeping. A retry clears the request to stop, not the progress.
    """


SEND_ID_KEPT_MS = 600_000
