"""The record of a job: its fields, and the attributes of its item. What a job does not have is not in its item.

The item's places in the indexes follow from its state:

    ORDER   state and run_after, by which jobs are claimed, scanned and counted; in progress: when the claim expires
    DUE     state and the time of the end, for `prune`; DEAD_LETTER in place of the state, until it was copied
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from pinlater.backends.dynamodb.items import (
    DUE_KEY,
    MARK,
    ORDER_KEY,
    Item,
    ItemPlaces,
    at,
    priority_of,
    qid_of,
)
from pinlater.backends.packed_trails import added, attempt_to_add, attempts_of, lines_of
from pinlater.backends.requests import changes_behind
from pinlater.model import (
    MAX_TIME_MS,
    DequeuedJob,
    JobInfo,
    JobProgress,
    JobState,
    JobTrail,
    descriptor_prefix,
)
from pinlater.model.body_reference import BodyReference, body_length
from pinlater.model.status_text import append_at, append_status

PENDING, IN_PROGRESS, SUCCEEDED, FAILED, WAITING, CANCELLED, REPLAYED = range(7)
STATES_OF = {
    JobState.PENDING: (PENDING, WAITING),
    JobState.IN_PROGRESS: (IN_PROGRESS,),
    JobState.SUCCEEDED: (SUCCEEDED,),
    JobState.FAILED: (FAILED, CANCELLED, REPLAYED),
}
SHOWN = {state: shown for shown, states in STATES_OF.items() for state in states}
DEAD_LETTER = "d"
MOST_BYTES = 360 * 1024
"""The most bytes of a body: an item holds 400 KB, and the rest of a job may need up to 40."""

MOST_BYTES_WITH_LOG = MOST_BYTES - 20 * 1024
"""And of one whose job keeps a log in its item."""


def _attribute(name: str, default: Any = None) -> Any:
    return field(default=default, metadata={"attribute": name})


@dataclass(slots=True)
class StoredJob:
    qid: str
    priority: int
    id: int
    body: bytes = _attribute("b", b"")
    state: int = _attribute("st", PENDING)
    run_after_ms: int = _attribute("ra", 0)
    attempts_allowed: int = _attribute("aa", 0)
    attempts_remaining: int = _attribute("ar", 0)
    custom_status: str = _attribute("cs", "")
    created_at_ms: int = _attribute("ca", 0)
    updated_at_ms: int = _attribute("ua", 0)
    claim: str | None = _attribute("cl")
    claimed_at_ms: int | None = _attribute("ct")
    timeout_ms: int | None = _attribute("tm")
    expires_at_ms: int | None = _attribute("ce")
    """When its claim expires."""

    last_seen_ms: int | None = _attribute("ls")
    finished_at_ms: int | None = _attribute("fa")
    crashes: int = _attribute("cr", 0)
    origin: str | None = _attribute("or")
    moved_to: str | None = _attribute("mv")
    attempts_of_origin: int | None = _attribute("oa")
    is_dead_letter_pending: bool = _attribute("dl", False)
    undelivered: list[int] | None = field(default=None, metadata={"attribute": "un"})
    """How often in a row nobody received it, and the attempts and run_after that it had meanwhile."""

    dedupe_key: str = _attribute("dk", "")
    serialize_key: str = _attribute("ck", "")
    send_id: str = _attribute("si", "")
    slot: int = _attribute("sl", 0)
    dedupe_for_ms: int = _attribute("df", 0)
    own_timeout_ms: int | None = _attribute("to")
    over_at_ms: int | None = _attribute("x")
    place: int | None = _attribute("pl")
    """Its place in the chain of its serialize key, while it is live."""

    stop_by: str | None = _attribute("sb")
    """Who asked it to stop; "": nobody, and it has had a successor."""

    progress: list[Any] | None = field(default=None, metadata={"attribute": "pr"})
    attempts: bytes | None = _attribute("at")
    """The record of its attempts before the last (packed_trails.py)."""

    log: bytes | None = _attribute("lg")

    @property
    def is_live(self) -> bool:
        return self.state in (PENDING, IN_PROGRESS, WAITING)

    @property
    def is_letter(self) -> bool:
        """A dead letter, whose keys are to show alone."""
        return self.attempts_of_origin is not None

    @property
    def is_keyed(self) -> bool:
        return bool(self.dedupe_key or self.serialize_key or self.send_id)

    def is_over(self, now_ms: int) -> bool:
        return self.over_at_ms is not None and self.over_at_ms <= now_ms

    def is_claimable(self, now_ms: int) -> bool:
        return self.state == PENDING and self.run_after_ms <= now_ms and not self.is_over(now_ms)

    def is_held_by(self, claim: str) -> bool:
        return self.state == IN_PROGRESS and self.claim == claim

    # -- what becomes of it ------------------------------------------------------------------------------------------

    def hold(self, claim: str, from_ms: int, timeout_ms: int) -> None:
        """It is handed out under this claim, which begins then."""
        self.state, self.claim = IN_PROGRESS, claim
        self.claimed_at_ms = self.last_seen_ms = self.updated_at_ms = from_ms
        self.timeout_ms, self.expires_at_ms = timeout_ms, min(from_ms + timeout_ms, MAX_TIME_MS)

    def renew(self, now_ms: int, expires_at_ms: int) -> None:
        """A sign of life, by which its claim expires then; where a later change has overtaken it, never earlier than
        before, and both times move, by which others see that it came.
        """
        earliest_ms, latest_ms = changes_behind(now_ms)
        last_ms = max(self.updated_at_ms, self.claimed_at_ms or 0)
        if earliest_ms <= last_ms <= latest_ms:
            now_ms, expires_at_ms = last_ms + 1, max(expires_at_ms, (self.expires_at_ms or 0) + 1)
        self.updated_at_ms = self.last_seen_ms = now_ms
        self.expires_at_ms = expires_at_ms

    def unclaim(self) -> None:
        self.state = PENDING
        self.claim = self.claimed_at_ms = self.timeout_ms = self.expires_at_ms = self.last_seen_ms = None

    def keep_attempt(self, now_ms: int, outcome: int) -> None:
        """Its attempt ends now, with this outcome, and is not told by the job itself."""
        self.attempts = added(
            self.attempts, self.run_after_ms, self.claimed_at_ms or 0, now_ms, outcome, self.claim or ""
        )

    def keep_last_attempt(self) -> None:
        """It ended, and is retried: the last attempt, if it had one, is told by the job itself no more."""
        if self.claimed_at_ms is not None and self.claim is not None:
            self.attempts = (
                attempt_to_add(
                    *(self.attempts, self.run_after_ms, self.claimed_at_ms, self.finished_at_ms or 0, self.claim),
                    cancelled=self.state == CANCELLED,
                )
                or self.attempts
            )

    @property
    def trail(self) -> JobTrail:
        return JobTrail(
            attempts_of(
                self.attempts,
                SHOWN[self.state],
                *(self.run_after_ms, self.claimed_at_ms, self.finished_at_ms, self.claim),
                cancelled=self.state == CANCELLED,
            ),
            lines_of(self.log),
        )

    def finish(self, state: int, now_ms: int) -> None:
        self.state, self.finished_at_ms, self.expires_at_ms = state, now_ms, None

    def append_status(self, text: str) -> None:
        if text:
            self.custom_status = append_status(self.custom_status, *append_at(text))

    # -- its item ----------------------------------------------------------------------------------------------------

    def item(self, places: ItemPlaces) -> Item:
        key = places.job(self.qid, self.priority, self.id)
        made: Item = {"pk": key.pk, "sk": key.sk, ORDER_KEY: self._order(), "n": body_length(self.body)}
        for name, attribute, default in FIELDS:
            value = getattr(self, name)
            if value != default:
                made[attribute] = value
        if isinstance(self.body, BodyReference):
            made["b"], made["t"] = bytes(self.body), True
        if not self.is_live:
            kind = DEAD_LETTER if self.is_dead_letter_pending else str(self.state)
            made[DUE_KEY] = f"{kind}{at(self.finished_at_ms or 0)}{self.id}"
        return made

    def _order(self) -> str:
        time_ms = self.expires_at_ms if self.state == IN_PROGRESS else self.run_after_ms
        return f"{self.state}{at(time_ms or 0)}{self.id}"

    @classmethod
    def of_item(cls, item: Item) -> StoredJob:
        job = cls(qid_of(item["pk"]), priority_of(item["pk"]), int(item["sk"]))
        for name, attribute, _ in FIELDS:
            if attribute in item:
                setattr(job, name, item[attribute])
        if item.get("t"):
            job.body = BodyReference(job.body)
        return job

    def descriptor(self, queue: str, shard_id: str) -> str:
        return f"{descriptor_prefix(queue, shard_id, self.priority)}{self.id}"

    def dequeued(self, descriptor: str) -> DequeuedJob:
        return DequeuedJob(
            *(descriptor, self.body, self.priority, self.attempts_allowed, self.attempts_remaining),
            *(self.run_after_ms, self.created_at_ms, self.claim or "", self.expires_at_ms or 0),
        )

    def info(self, descriptor: str) -> JobInfo:
        """Without its body, and what it waits for."""
        info = JobInfo(
            *(descriptor, SHOWN[self.state], self.priority, self.attempts_allowed, self.attempts_remaining),
            *(self.custom_status, self.created_at_ms, self.run_after_ms, self.updated_at_ms, self.claim),
            *(self.claimed_at_ms, self.expires_at_ms, self.finished_at_ms, self.crashes),
        )
        info.date_last_change()
        info.origin, info.moved_to = self.origin, self.moved_to
        if self.state == REPLAYED:
            info.moved_to, info.replayed_to = None, self.moved_to
        info.dedupe_key, info.serialize_key = self.dedupe_key or None, self.serialize_key or None
        info.cancelled = True if self.state == CANCELLED else None
        info.progress = None if self.progress is None else JobProgress(*self.progress)
        info.expires_at_ms, info.claim_timeout_ms = self.over_at_ms, self.own_timeout_ms
        info.cancel_requested_by, info.dedupe_for_ms = self.stop_by or None, self.dedupe_for_ms
        return info


FIELDS = [(each.name, each.metadata["attribute"], each.default) for each in fields(StoredJob) if each.metadata]


ALL_BUT_THE_BODY = [attribute for _, attribute, _ in FIELDS if attribute != "b"] + ["pk", "sk", "t", "n", MARK]
