"""The totals of all server processes by their last reports, and the counts since then. Pure.

Each process says what it has counted since it began. The difference to what it said before is what is new, however
often it is asked and whoever asks; what was counted while nobody asked is in the next difference. The ledger is kept
with the history, so nothing is counted twice when another process goes on with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pinlater.model.operator_views import COUNTED, ProcessCounters

Numbers = tuple[int, ...]
_NOTHING: Numbers = (0,) * len(COUNTED)

FORGOTTEN_MS = 600_000
"""A process that nobody has told of for so long has ended."""


class _Account(msgspec.Struct, array_like=True):
    """One process. `is_whole`: a queue that is not there had counted nothing when the process was last told of."""

    started_ms: int
    reported_ms: int
    is_whole: bool
    queues: dict[str, Numbers]


class CounterLedger:
    """By process."""

    def __init__(self, accounts: dict[str, _Account] | None = None) -> None:
        self._accounts = accounts or {}

    def take(self, processes: Sequence[ProcessCounters], since_ms: int | None, now_ms: int) -> dict[str, list[int]]:
        """What is new by queue, in the order of COUNTED. `since_ms`: when this was last asked, None for never."""
        new: dict[str, list[int]] = {}
        for process in processes:
            account = self._accounts.get(process.process)
            if account is None or account.started_ms != process.started_ms:
                is_new = process.started_ms >= (now_ms - _YOUNG_MS if since_ms is None else since_ms - _SLACK_MS)
                account = _Account(process.started_ms, now_ms, is_new, {})
                self._accounts[process.process] = account
                if not is_new:  # what it had counted before is nobody's: it was counted, or not looked at
                    account.queues.update(process.queues)
                    account.is_whole = not process.is_cut
                    continue
            account.reported_ms = now_ms
            self._add(account, process, new)
        for name, account in [*self._accounts.items()]:
            if now_ms - account.reported_ms > FORGOTTEN_MS:
                del self._accounts[name]
        return new

    def _add(self, account: _Account, process: ProcessCounters, new: dict[str, list[int]]) -> None:
        for queue, numbers in process.queues.items():
            before = account.queues.get(queue)
            account.queues[queue] = numbers
            if before is None:
                if not account.is_whole:
                    continue
                before = _NOTHING
            if before != numbers:
                sums = new.setdefault(queue, [0] * len(COUNTED))
                for at, (was, amount) in enumerate(zip(before, numbers, strict=False)):
                    sums[at] += max(0, amount - was)

    # -- as it is kept -------------------------------------------------------------------------------------------------

    def packed(self) -> bytes:
        return msgspec.msgpack.encode(self._accounts)

    @classmethod
    def unpacked(cls, packed: bytes) -> CounterLedger:
        """msgspec.MsgspecError: it is no ledger."""
        return cls(msgspec.msgpack.decode(packed, type=dict[str, _Account]))


_YOUNG_MS = 60_000
"""Where nobody ever asked, a process that is not older than this counts from its beginning."""

_SLACK_MS = 15_000
"""A process that began so shortly before the last time was not heard of yet then."""


def spread(numbers: Sequence[int], from_ms: int, to_ms: int, unit_ms: int) -> dict[int, list[int]]:
    """What was counted in a time, by minutes (or another unit): to each the part of the time that lies in it.

    >>> spread([10, 3], 30_000, 90_000, 60_000)
    {0: [5, 1], 1: [5, 2]}
    """
    first, last = from_ms // unit_ms, max(from_ms, to_ms - 1) // unit_ms
    found: dict[int, list[int]] = {}
    before = [0] * len(numbers)
    for unit in range(first, last + 1):
        until_ms = min(to_ms, (unit + 1) * unit_ms)
        share = 1.0 if unit == last else (until_ms - from_ms) / (to_ms - from_ms)
        until = [int(number * share) for number in numbers]
        found[unit] = [now - was for now, was in zip(until, before, strict=True)]
        before = until
    return found
