"""The budget of expressions: the steps and the bytes that they may still spend, passed along from one to the next.

A step is worth about half a microsecond, so that steps bound the time; bytes bound the memory.
"""

from __future__ import annotations

from collections.abc import Callable

MAX_STEPS = 500_000
"""Of all expressions that one item is given to."""

OF_ITEM = f"the {MAX_STEPS:,} steps of one item"

MAX_BYTES = 64 * 1024 * 1024
"""What these may read into memory and make there."""

MAX_STEPS_AT_ONCE = 100_000
"""Of one function: nothing else runs in the process meanwhile."""

LIST_BYTES, OBJECT_BYTES, ENTRY_BYTES, PLACE_BYTES = 64, 240, 100, 8
"""Of an empty list, an empty object, an entry of one, and a place in a list."""

WIDE = 4
"""Bytes of a character, in a text that has one that is not of ASCII; else 1."""

BYTES_A_STEP, VALUES_A_STEP = 64, 8
"""Of a text that is made or read, and of values whose kind is checked or whose places are copied."""

_VALUE_BYTES = 64
_JSON_BYTES_A_STEP = 256
_SHORT, _SHORT_BYTES = 128, 200
"""The most that a byte of JSON becomes is an empty object of three."""


class TooDear(Exception):
    """The message says what was too dear, and no value."""


class Budget:
    """What evaluations may still spend. `owner`: whose steps these are, for who reads that they are used up. `pause` is
    called after every `slice_steps` of them.
    """

    __slots__ = ("_owner", "_pause", "_slice_steps", "bytes", "first_steps", "steps", "stop_at")

    def __init__(
        self,
        steps: int = MAX_STEPS,
        owner: str = OF_ITEM,
        pause: Callable[[], None] | None = None,
        slice_steps: int = 0,
    ) -> None:
        self.first_steps = self.steps = steps
        self.bytes = MAX_BYTES
        self._owner = owner
        self._pause, self._slice_steps = pause, slice_steps
        self.stop_at = 0
        """With fewer steps than that it is time for `stop`."""
        self._begin_slice()

    @property
    def spent(self) -> int:
        """Steps."""
        return self.first_steps - max(0, self.steps)

    def spend(self, steps: int, what: str) -> None:
        """TooDear."""
        if steps > MAX_STEPS_AT_ONCE:
            raise TooDear(f"{what} takes {steps:,} steps at once; allowed: {MAX_STEPS_AT_ONCE:,}")
        self.steps -= steps
        if self.steps < self.stop_at:
            self.stop(what)

    def stop(self, what: str) -> None:
        """A slice is over, or all steps are: TooDear."""
        if self.steps < 0:
            raise TooDear(f"{self._owner} were used up at {what}")
        self._begin_slice()
        if self._pause is not None:
            self._pause()

    def _begin_slice(self) -> None:
        if self._pause is not None:
            self.stop_at = max(0, self.steps - self._slice_steps)

    def make(self, amount: int, what: str) -> None:
        """TooDear."""
        if amount > self.bytes:
            raise TooDear(f"{what} needs {amount:,} bytes; left of the {MAX_BYTES:,} of one item: {self.bytes:,}")
        self.bytes -= amount

    def read(self, text: bytes, what: str) -> None:
        """Charge for JSON that is to be decoded, by what it may become. TooDear."""
        if len(text) <= _SHORT:  # not worth counting what is in it
            self.spend(1 + len(text) // VALUES_A_STEP, what)
            self.make(len(text) * _SHORT_BYTES, what)
            return
        self.spend(len(text) // _JSON_BYTES_A_STEP, what)
        values, entries = text.count(b",") + text.count(b"[") + 1, text.count(b":")
        self.spend((values + 2 * entries) // VALUES_A_STEP, what)
        width = 1 if text.isascii() and b"\\" not in text else WIDE
        self.make(len(text) * width + values * _VALUE_BYTES, what)
        self.make(text.count(b"{") * OBJECT_BYTES + entries * ENTRY_BYTES, what)

    def read_list(self, text: bytes, what: str) -> None:
        """As `read`, where the elements of a list stay texts."""
        self.spend(len(text) // _JSON_BYTES_A_STEP, what)
        values = text.count(b",") + 1
        self.spend(values // VALUES_A_STEP, what)
        self.make(len(text) + values * ENTRY_BYTES, what)
