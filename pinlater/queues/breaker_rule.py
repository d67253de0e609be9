"""The rule of a queue's circuit breaker, as its setting `pause_on_failures` has it: `50%/100/1m/30s`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from pinlater.durations import DAY_MS, duration_text, parse_duration_ms, stored_duration_text
from pinlater.setting_kinds import quoted, within

_MAX_ATTEMPTS = 1_000_000_000
_SHORTEST_MS, _LONGEST_MS = 1_000, DAY_MS
_STEPS = 20
"""A window moves in so many steps, or in steps of a second where these would be shorter."""

_MIN_STEP_MS = 1_000
_RULE = re.compile(r"\s*([0-9]{1,3})\s*%\s*/\s*([0-9]{1,10})\s*/([^/]+)/([^/]+)", re.ASCII)


class Tally(NamedTuple):
    """Attempts that ended in a time, and how many of them failed."""

    attempts: int
    failed: int


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """The breaker opens when `share_percent` of the attempts that ended in a window failed, and at least `attempts`
    ended. While it is open one job is tried every `probe_every_ms`.
    """

    share_percent: int
    attempts: int
    window_ms: int
    probe_every_ms: int

    def is_reached(self, tally: Tally) -> bool:
        return tally.attempts >= self.attempts and tally.failed * 100 >= self.share_percent * tally.attempts

    @property
    def least_failed(self) -> int:
        """With fewer failed attempts than these no window reaches it."""
        return -(-self.share_percent * self.attempts // 100)

    @property
    def step_ms(self) -> int:
        """The window moves in such steps, from multiples of this time on, so that all processes count alike."""
        return max(_MIN_STEP_MS, -(-self.window_ms // _STEPS))

    @property
    def steps(self) -> int:
        """The steps of a window; the last one is not over."""
        return -(-self.window_ms // self.step_ms)

    def reason(self, tally: Tally) -> str:
        """Why the breaker is open, in words.

        >>> BreakerRule(50, 100, 60_000, 30_000).reason(Tally(120, 90))
        '90 of 120 attempts failed in 1m; one job is tried every 30s until one succeeds'
        """
        return (
            f"{tally.failed:,} of {tally.attempts:,} attempts failed in {duration_text(self.window_ms)}; one job is "
            f"tried every {duration_text(self.probe_every_ms)} until one succeeds"
        )


class FailureShare:
    """A BreakerRule: a share of failures, at least so many attempts, the window, and how often a job is tried."""

    repeatable = False
    metavar = "RULE"
    allowed = (
        "SHARE%/ATTEMPTS/WINDOW/PROBE as in 50%/100/1m/30s, with a share of 1% to 100%, at least 1 attempt, and "
        f"{duration_text(_SHORTEST_MS)} to {stored_duration_text(_LONGEST_MS)} for the window and between two probes"
    )

    def parse(self, value: object) -> BreakerRule:
        match = _RULE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError
        share_percent, attempts = int(match[1]), int(match[2])
        try:
            window_ms, probe_every_ms = (
                parse_duration_ms(text.strip(), _SHORTEST_MS, _LONGEST_MS) for text in (match[3], match[4])
            )
        except ValueError:
            raise ValueError from None  # `allowed` says what is right
        return BreakerRule(within(share_percent, 1, 100), within(attempts, 1, _MAX_ATTEMPTS), window_ms, probe_every_ms)

    def toml(self, value: object) -> str:
        assert isinstance(value, BreakerRule)
        times = f"{duration_text(value.window_ms)}/{duration_text(value.probe_every_ms)}"
        return quoted(f"{value.share_percent}%/{value.attempts}/{times}")
