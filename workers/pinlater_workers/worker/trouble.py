"""What goes wrong and goes on going wrong: said once when it begins, once when it is over, and how long to wait."""

from __future__ import annotations

import logging
import random
import time

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
"""Short, so that a worker takes jobs within seconds of its servers' return."""

log = logging.getLogger("pinlater_workers.worker")


def pause_s(failures: int, rng: random.Random) -> float:
    """After so many failures in a row: doubling to the bound, jittered by half."""
    bound: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16))
    return bound * rng.uniform(0.5, 1.0)


class Troubles:
    """Each under a name of its own, with those that suffer from it: it is over when none does any more."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._sufferers: dict[str, set[str]] = {}

    def begin(self, name: str, text: str, sufferer: str = "") -> None:
        """Says `text`, where this trouble is new."""
        sufferers = self._sufferers.setdefault(name, set())
        if not sufferers:
            self._since_s[name] = time.monotonic()
            log.warning(text)
        sufferers.add(sufferer)

    def over(self, name: str, text: str, sufferer: str = "") -> None:
        """Says `text` and how long it took, where that was a trouble of this sufferer, and the last one's."""
        sufferers = self._sufferers.get(name)
        if sufferers and sufferer in sufferers:
            sufferers.discard(sufferer)
            if not sufferers:
                log.info("%s (after %.1f s)", text, time.monotonic() - self._since_s[name])
