"""Patterns over the bytes of bodies and statuses: RE2 in its Latin-1 mode, so that any byte matches, and always in
linear time.

The pattern's own text counts as its UTF-8 bytes: a literal `é` finds the two bytes that text bodies hold for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import re2

from pinlater.errors import RequestInvalid

MAX_PATTERN_BYTES = 4_096
MAX_PROGRAM_STEPS = 5_000
"""The most steps of a compiled pattern: each byte of a body can cost as many, some 3 ns each, when it has too many
states at once.
"""

_MAX_MEMORY_BYTES = 1024 * 1024
"""The most memory of a compiled pattern and its states; it also bounds the time of the compilation, some 10 ms."""

MAX_SEARCH_STEPS = 500_000_000
"""The most steps, times the bytes of one body: some 2 s of a thread, which nothing can break off."""

SIMPLE_STEPS = 250
"""A pattern of no more is searched for in any body."""

INLINE_STEPS = 1_000_000
"""Up to so many steps, times bytes, are searched at once; more are searched in a thread."""

_SLICE_S = 0.05
"""A search leaves its thread to others after so long, and takes its turn again."""

_THREADS = ThreadPoolExecutor(2, thread_name_prefix="patterns")
"""Of a process, for all searches: whoever searches much waits behind others who search, and nobody else does."""


class BodyPattern:
    """A compiled pattern. RequestInvalid, with the name of its field, for one that cannot be compiled."""

    def __init__(self, pattern: str, field: str = "bodyRegexToMatch") -> None:
        text = pattern.encode("utf-8", "surrogatepass")
        if len(text) > MAX_PATTERN_BYTES:
            raise RequestInvalid.of(field, pattern[:200], f"at most {MAX_PATTERN_BYTES} bytes")
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.log_errors = False
        options.never_capture = True
        options.max_mem = _MAX_MEMORY_BYTES
        try:
            compiled = re2.compile(text, options)
        except re2.error as error:
            raise RequestInvalid.of(field, pattern, f"an RE2 pattern ({_reason(error)})") from error
        finally:
            re2.purge()  # it would keep 128 patterns with all their states
        self._field, self._pattern = field, pattern
        self._search = compiled.search
        self._steps = compiled.programsize
        if self._steps > MAX_PROGRAM_STEPS:
            allowed = f"a pattern of at most {MAX_PROGRAM_STEPS} steps; it has {self._steps}"
            raise RequestInvalid.of(field, pattern, allowed)

    def matches(self, body: bytes) -> bool:
        return self._search(body) is not None

    async def select(
        self, bodies: Sequence[bytes], within_s: float = float("inf"), inline_steps: int = INLINE_STEPS
    ) -> list[bool]:
        """For each body, whether the pattern is found in it; for the first ones only when the time is over.
        RequestInvalid: one of them is too large for a pattern like this.
        """
        sizes = [len(body) for body in bodies]
        if sum(sizes) * self._steps <= inline_steps:
            return [self.matches(body) for body in bodies]
        largest = max(sizes)
        if self._steps > SIMPLE_STEPS and largest * self._steps > MAX_SEARCH_STEPS:
            most = max(SIMPLE_STEPS, MAX_SEARCH_STEPS // largest)
            allowed = f"a pattern of at most {most} steps, as there is a body of {largest} bytes; it has {self._steps}"
            raise RequestInvalid.of(self._field, self._pattern, allowed)
        found: list[bool] = []
        ends_at, loop = time.monotonic() + within_s, asyncio.get_running_loop()
        while len(found) < len(bodies):
            found += await loop.run_in_executor(_THREADS, self._slice, bodies, len(found), ends_at)
            if time.monotonic() >= ends_at:
                break
        return found

    def _slice(self, bodies: Sequence[bytes], start: int, ends_at: float) -> list[bool]:
        """Whether the pattern is found in each body from `start` on; in one at least, and no more once time is up."""
        ends_at = min(ends_at, time.monotonic() + _SLICE_S)
        found: list[bool] = []
        for place in range(start, len(bodies)):
            found.append(self.matches(bodies[place]))
            if time.monotonic() >= ends_at:
                break
        return found


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
