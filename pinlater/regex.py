"""Patterns over the bytes of bodies: RE2 in its Latin-1 mode, so that any byte matches, and always in linear time.

The pattern's own text counts as its UTF-8 bytes: a literal `é` finds the two bytes that text bodies hold for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import re2

from pinlater.errors import RequestInvalid

MAX_PATTERN_BYTES = 4_096
_INLINE_BYTES = 64 * 1024
"""Up to so many bytes are searched at once; more are searched in a thread."""


class BodyPattern:
    """A compiled pattern. RequestInvalid for one that cannot be compiled."""

    def __init__(self, pattern: str) -> None:
        text = pattern.encode("utf-8", "surrogatepass")
        if len(text) > MAX_PATTERN_BYTES:
            raise RequestInvalid.of("bodyRegexToMatch", pattern, f"at most {MAX_PATTERN_BYTES} bytes")
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.log_errors = False
        options.never_capture = True
        try:
            self._search = re2.compile(text, options).search
        except re2.error as error:
            raise RequestInvalid.of("bodyRegexToMatch", pattern, f"an RE2 pattern ({_reason(error)})") from error

    def matches(self, body: bytes) -> bool:
        return self._search(body) is not None

    async def select(self, bodies: Sequence[bytes]) -> list[bool]:
        """For each body, whether the pattern is found in it."""
        if sum(map(len, bodies)) <= _INLINE_BYTES:
            return [self.matches(body) for body in bodies]
        return await asyncio.to_thread(lambda: [self.matches(body) for body in bodies])


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
