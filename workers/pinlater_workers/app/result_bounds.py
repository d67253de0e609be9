"""The bounds of results, by queue: what a server would refuse is refused before the ack, as the attempt's failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pinlater.sizes import parse_size
from pinlater_workers.jobs.results import UNASKED_BYTES

if TYPE_CHECKING:
    from pinlater.client.client import Client

FRESH_S = 1.0
"""Where nobody may be asked, a bound that was asked for so long ago refuses nothing: it may have been raised since."""

WITHIN_S = 5.0


class ResultBounds:
    """What is known of each queue's max_result. For any number of threads."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._known: dict[str, tuple[int, float]] = {}

    def exceeded(self, queue: str, size: int, *, may_ask: bool = True) -> int | None:
        """The bound, where a result of that size is beyond it; None: it fits, or nobody knows.

        `may_ask`: a server is asked, and waited for, unless the size is within the bound that is known.
        """
        bound, learned_s = self._known.get(queue, (0, float("-inf")))
        if size <= max(bound, UNASKED_BYTES):
            return None
        if may_ask:
            self.learn(queue)
        elif time.monotonic() - learned_s > FRESH_S:
            return None
        bound, _ = self._known.get(queue, (size, 0.0))
        return bound if size > bound else None

    def learn(self, queue: str) -> None:
        """Asks a server, and waits for it. Where none says, nothing is known: then the ack's answer decides."""
        try:
            (view,) = self._client().get_queues([queue], timeout=WITHIN_S)
            self._known[queue] = parse_size(view.settings["max_result"].value), time.monotonic()
        except Exception:  # whatever keeps it from being known, the attempt has succeeded
            self._known.pop(queue, None)
