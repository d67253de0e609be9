"""Patterns over the bytes of bodies and statuses: RE2 in its Latin-1 mode, so that any byte matches, and always in
linear time.

The pattern's own text counts as its UTF-8 bytes: a literal `é` finds the two bytes that text bodies hold for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import re2

from pinlater.errors import RequestInvalid

MAX_PATTERN_BYTES = 4_096
MAX_PROGRAM_STEPS = 5_000
"""The most steps of a compiled pattern: each byte of a body can cost as many, some 3 ns each, when it has too many
states at once.
"""

_MAX_MEMORY_BYTES = 1024 * 1024
"""The most memory of a compiled pattern and its states; it also bounds the time of the compilation, some 10 ms."""

_INLINE_STEPS = 1_000_000
"""Up to so many steps are searched at once; more are searched in a thread."""


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
        self._search = compiled.search
        self._steps = compiled.programsize
        if self._steps > MAX_PROGRAM_STEPS:
            allowed = f"a pattern of at most {MAX_PROGRAM_STEPS} steps; it has {self._steps}"
            raise RequestInvalid.of(field, pattern, allowed)

    def matches(self, body: bytes) -> bool:
        return self._search(body) is not None

    async def select(self, bodies: Sequence[bytes], within_s: float = float("inf")) -> list[bool]:
        """For each body, whether the pattern is found in it; for the first ones only when the time is over."""
        if sum(map(len, bodies)) * self._steps <= _INLINE_STEPS:
            return [self.matches(body) for body in bodies]
        return await asyncio.to_thread(self._select, bodies, time.monotonic() + within_s)

    def _select(self, bodies: Sequence[bytes], ends_at: float) -> list[bool]:
        found: list[bool] = []
        for body in bodies:
            found.append(self.matches(body))
            if time.monotonic() >= ends_at:
                break
        return found


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
