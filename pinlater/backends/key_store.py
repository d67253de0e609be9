"""Extended jobs in a store: those with keys, what their keys name, and what moves when the homes of keys change."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.backends.extended import Barrier, BlockedChain, KeyHolder, KeyWindow, Offer, Offered
from pinlater.backends.operations import StorePart, operation
from pinlater.backends.requests import JobKey
from pinlater.model import KeyRef


class KeyStore(StorePart):
    """A store that lacks it refuses extended jobs, holds no keys, and is no home of any."""

    @operation(batch=1, batch_label="enqueue")
    async def enqueue_extended(
        self, queue: str, offers: Sequence[Offer], now_ms: int, homes_version: str = ""
    ) -> list[Offered]:
        """Store extended jobs, in order, each by itself: an offer sees what those before it did.

        `homes_version`: the version of the config entry "@homes" by which the caller chose this shard; where the one
        here is higher, HomesChanged, and nothing is stored ("": not compared). A resend (the send id stands here) gets
        the outcome and descriptor of the first time, and changes nothing; of an offer that was KEPT or REPLACED this is
        remembered for SEND_ID_KEPT_MS, of any other that stored nothing it is not. Else a dedupe key that is taken
        decides by `on_duplicate`; keys are unique per queue and serialize key, so one with another serialize key (or
        none) is another key. REPLACE sets body, run_after (None: now; see `replaced_due_ms`) and both numbers of
        attempts, of what is PENDING or WAITING, and nothing else of the job but `updated_at_ms`. Of a key whose job is
        IN_PROGRESS that is the successor, where there is one. Where there is none, `replace_running` decides: KEEP
        keeps, anything else stores the job as the successor, WAITING until the running one has ended (see JobEnd), and
        a line in the status of that one says so. With CANCEL the running job is asked to stop, in the name of `by`,
        whether or not the successor is new. Else the job is stored: PENDING, or WAITING where its serialize key has a
        live job here already. Its tags go with it, when it is removed. A store that keeps no tags raises
        TagsNotSupported, and then nothing is stored. The first extended job of a store raises its version, and so does
        the first successor: processes of older versions, which would misread them, cannot open it any more.
        QueueNotFound, and then nothing is stored.
        """

    @operation(reads=True, optional=True)
    async def find_keys(self, queue: str, keys: Sequence[KeyRef]) -> list[KeyHolder | None]:
        """Each key's job here (see KeyRef), whether or not it is kept, and its successor; None where there is none."""
        return [None] * len(keys)

    @operation(reads=True, optional=True)
    async def taken_keys(self, queue: str, jobs: Sequence[JobKey]) -> list[str | None]:
        """For each job that has ended and whose dedupe key has another live job now: that job's descriptor, else None.
        For a dead letter: as if it were the job that it is a copy of.
        """
        return [None] * len(jobs)

    @operation(reads=True, optional=True)
    async def blocked_chains(self, limit: int, now_ms: int) -> list[BlockedChain]:
        """The serialize keys with most jobs waiting, at most so many, and those whose first job is oldest, likewise.

        Cheap: it is asked every few seconds.
        """
        return []

    @operation(reads=True, optional=True)
    async def last_firings(self, schedules: Sequence[str]) -> list[str | None]:
        """For each schedule the highest `mark` of an offer of it that was stored here (see Offer), or None."""
        return [None] * len(schedules)

    @operation()
    async def raise_marks(self, marks: Mapping[str, str]) -> None:
        """Let these marks count for schedules that have none here, or a lower one."""

    @operation(reads=True, optional=True)
    async def key_slots(self) -> Sequence[int]:
        """The slots of all keys that have an entry or a live job here."""
        return ()

    @operation(reads=True, optional=True)
    async def list_windows(self, limit: int, after: str, now_ms: int) -> list[KeyWindow]:
        """Up to `limit` windows by name, behind `after` ("": from the beginning)."""
        return []

    @operation()
    async def put_windows(self, windows: Sequence[KeyWindow], now_ms: int) -> None:
        """Take those whose key has no live job here, and no window that still counts. QueueNotFound never: one of a
        queue that is gone is left out.
        """

    @operation(optional=True)
    async def drop_windows(self, windows: Sequence[KeyWindow]) -> None:
        """Remove these, where they are as they were listed."""

    @operation(reads=True, optional=True)
    async def has_chains(self, serialize_keys: Sequence[str]) -> list[bool]:
        """Whether a job of the key is live here."""
        return [False] * len(serialize_keys)

    @operation(reads=True, optional=True)
    async def list_barriers(self, limit: int) -> list[Barrier]:
        """Up to `limit` of the barriers on this shard."""
        return []

    @operation(optional=True)
    async def lift_barriers(self, barriers: Sequence[Barrier], now_ms: int) -> Mapping[str, Sequence[int]]:
        """The first of each key's jobs here goes from WAITING to PENDING; the run_afters of these, by queue. A barrier
        goes with the last of the jobs behind it.
        """
        return {}
