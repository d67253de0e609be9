"""Which types of job end so soon that telling the heartbeat process of their claims is in vain. Pure."""

from __future__ import annotations

from collections import defaultdict

QUICK_S = 0.2
IN_A_ROW = 100


class Quick:
    """By the attempts that were last: so many in a row that took less than QUICK_S. Nobody knows of a new type.

    `names` are those of the types.
    """

    def __init__(self) -> None:
        self._in_a_row: defaultdict[str, int] = defaultdict(int)
        self.names: set[str] = set()

    def note(self, job: str, run_s: float, times: int = 1) -> None:
        """An attempt ended, or goes on, after so long; or so many attempts."""
        if job in self.names:
            if run_s >= QUICK_S:
                self.names.remove(job)
        elif run_s >= QUICK_S:
            self._in_a_row[job] = 0
        else:
            self._in_a_row[job] += times
            if self._in_a_row[job] >= IN_A_ROW:
                self._in_a_row[job] = 0
                self.names.add(job)
