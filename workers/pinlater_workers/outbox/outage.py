"""The log of a trouble that goes on: its beginning, once a minute that it has not ended, and its end."""

from __future__ import annotations

import time

from pinlater.log_guard import GuardedLogger
from pinlater.printable import printable

AGAIN_S = 60.0


class Outage:
    """One trouble of one part. `failures`: in a row; 0 while all is well. `why`: the last; "" while all is well."""

    def __init__(self, log: GuardedLogger, what: str) -> None:
        self._log = log
        self._what = what
        self._since_s = 0.0
        self._logged_s = 0.0
        self.failures = 0
        self.why = ""

    def begin(self, why: str) -> None:
        """It is so, or it still is."""
        now_s = time.monotonic()
        if not self.failures:
            self._since_s = now_s
        if not self.failures or now_s - self._logged_s >= AGAIN_S:
            self._logged_s = now_s
            self._log.warning("%s: %s; trying again", self._what, printable(why))
        self.failures += 1
        self.why = why

    def end(self) -> None:
        """It is over, if it was so."""
        if self.failures:
            self._log.info("over after %.1f s: %s", time.monotonic() - self._since_s, self._what)
        self.failures, self.why = 0, ""
