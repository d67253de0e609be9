"""An open circuit breaker, as all servers agree on it: a configuration entry, and the slot of its probe. Pure.

The entry `@breaker/QUEUE` is there while the breaker is open; its version names this opening. The time of its tombstone
is when the breaker was closed last: what was counted before does not count any more.

The slot is a key-value entry on one shard, the `place` that the configuration entry names, and is changed by
compare-and-swap alone. So there is one probe at a time in the whole cluster:

                 a process takes it, and claims                a job was claimed
    RESTING ────────────────────────────────────► TAKEN ──────────────────────────► OUT
       ▲  no job was there, or the process is gone  │                                │
       └────────────────────────────────────────────┴── the job's claim has ended ───┘
                                                        without a success
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pinlater.backends.base import ConfigEntry, KvEntry
from pinlater.queues.breaker_rule import BreakerRule
from pinlater.queues.settings import BREAKER, QueueSettings
from pinlater.stored_json import read_stored

BREAKER_PREFIX = f"{BREAKER}/"

TAKEN_MS = 10_000
"""A process that has taken the slot and not handed out a job by then is gone, or too slow: it will be refused."""


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    """The breaker of one queue, which is open. `version`: of its entry; `place`: the shard that has the slot."""

    version: str
    opened_ms: int
    why: str
    place: str

    def text(self) -> str:
        """That of its entry."""
        return json.dumps({"opened_ms": self.opened_ms, "why": self.why, "place": self.place})

    def pause(self, settings: QueueSettings) -> QueueSettings:
        """The settings of the queue while it is open."""
        return replace(
            settings,
            paused=True,
            paused_by=BREAKER,
            paused_at_ms=self.opened_ms,
            paused_why=self.why,
            paused_until_ms=None,
        )


def read_open_breaker(entry: ConfigEntry) -> OpenBreaker | None:
    """None: it is closed, or was opened by a version that says so otherwise."""
    if entry.is_deleted:
        return None
    try:
        words = read_stored(entry.text)
        return OpenBreaker(entry.version, int(words["opened_ms"]), str(words["why"]), str(words["place"]))
    except (ValueError, LookupError, TypeError):
        return None


class SlotState(StrEnum):
    """Where the one probe of a queue is."""

    RESTING = "resting"
    TAKEN = "taken"
    OUT = "out"


@dataclass(frozen=True, slots=True)
class ProbeSlot:
    """The probe of one opening. `at_ms`: from when on it may be taken, when it was taken, or when its job was handed
    out. `claim` and `job` are the descriptors of that job. `entry_version`: of the key-value entry that it was read
    from; 0: there is none.
    """

    opening: str
    state: SlotState
    at_ms: int
    claim: str = ""
    job: str = ""
    entry_version: int = 0

    def body(self) -> bytes:
        words = {
            "opening": self.opening,
            "state": self.state,
            "at_ms": self.at_ms,
            "claim": self.claim,
            "job": self.job,
        }
        return json.dumps(words).encode()

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until it may be taken; 0: now. None: not before its job has ended."""
        if self.state is SlotState.OUT:
            return None
        free_ms = self.at_ms + (TAKEN_MS if self.state is SlotState.TAKEN else 0)
        return max(0, free_ms - now_ms)

    def rested(self, rule: BreakerRule, now_ms: int) -> ProbeSlot:
        """The slot after a job that was tried and did not succeed: the next one comes as long after it as the rule
        says, or now.
        """
        next_ms = max(now_ms, self.at_ms + rule.probe_every_ms)
        return replace(self, state=SlotState.RESTING, at_ms=next_ms, claim="", job="")


def read_slot(entry: KvEntry | None, opened: OpenBreaker, rule: BreakerRule) -> ProbeSlot:
    """The slot of this opening. Where no process has taken it yet, the first probe comes a while after the opening."""
    version = 0 if entry is None else entry.version
    first = ProbeSlot(opened.version, SlotState.RESTING, opened.opened_ms + rule.probe_every_ms, entry_version=version)
    try:
        words: dict[str, Any] = {} if entry is None else read_stored(entry.body)
        if words.get("opening") != opened.version:
            return first
        state = SlotState(words["state"])
        return ProbeSlot(opened.version, state, int(words["at_ms"]), str(words["claim"]), str(words["job"]), version)
    except (ValueError, LookupError, TypeError, AttributeError):
        return first
