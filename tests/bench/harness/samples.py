"""What an adapter says on standard output: lines of JSON, a descriptor first and then samples, as the harness's
CONTRIBUTING_ADAPTERS.md describes them.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MANIFEST: dict[str, Any] = json.loads(Path(__file__).with_name("adapter.json").read_text(encoding="utf-8"))
WINDOW_S = 30
STEP = 1.001
"""From one class of a histogram to the next: three significant figures."""
OF_ALL_REPLICAS = frozenset({"queue_depth", "producer_target_rate"})
"""Only the first replica reports these."""


class Waits:
    """How long jobs waited, over the last WINDOW_S: a count for each class of each second, however many there were."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, Counter[int]]] = deque()

    def add(self, ms: float, now_s: float) -> None:
        if not self._seconds or self._seconds[-1][0] != int(now_s):
            self._seconds.append((int(now_s), Counter()))
            while self._seconds[0][0] < int(now_s) - WINDOW_S:
                self._seconds.popleft()
        self._seconds[-1][1][_class_of(ms)] += 1

    def quantiles(self, shares: Sequence[float], now_s: float) -> list[float]:
        """In milliseconds; 0 where none waited.

        >>> waits = Waits()
        >>> for ms in range(1, 101):
        ...     waits.add(ms, 5.0)
        >>> [round(each, 1) for each in waits.quantiles([0.5, 0.99], 6.0)], waits.quantiles([0.5], 60.0)
        ([50.0, 99.0], [0.0])
        """
        counts: Counter[int] = Counter()
        for second, counted in list(self._seconds):
            if second >= now_s - WINDOW_S:
                counts.update(counted)
        classes = sorted(counts)
        return [_share_of(counts, classes, share) for share in shares]


def _class_of(ms: float) -> int:
    return round(math.log(max(ms, 0.001)) / math.log(STEP))


def _share_of(counts: Mapping[int, int], classes: Sequence[int], share: float) -> float:
    left = math.ceil(share * sum(counts.values()))
    for each in classes:
        left -= counts[each]
        if left <= 0:
            return float(STEP**each)
    return 0.0


def descriptor(database: str, version: str, replica: int) -> dict[str, Any]:
    tables = {name: MANIFEST[name] for name in ("system", "event_tables", "event_indexes", "extensions")}
    about = {"version": version, "schema_version": version, "db_name": database, "started_at": now()}
    return {"kind": "descriptor", **tables, **about, "instance_id": replica}


def sample(metric: str, value: float, window_s: float, replica: int) -> dict[str, Any]:
    subject = {"system": MANIFEST["system"], "kind": "adapter", "subject_kind": "adapter", "subject": ""}
    return {"t": now(), **subject, "metric": metric, "value": value, "window_s": window_s, "instance_id": replica}


def now() -> str:
    """In UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_to_tick(every_s: float) -> float:
    """Until the clock on the wall is at a multiple: all replicas and systems sample at the same moments."""
    return every_s - time.time() % every_s


def say(record: Mapping[str, Any]) -> None:
    print(json.dumps(record), flush=True)
