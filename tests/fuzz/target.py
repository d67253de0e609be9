"""One thing that is fuzzed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random

Run = Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """`open` gives what runs one input. `seeds`: valid inputs. `change`: makes another input of one, by its structure.
    `refusals`: the errors that are documented for what is no valid input. `words`: pieces of its language.
    `most_bytes`: of an input. `renewed_after`: so many executions, it is opened anew, as it keeps what it was sent.
    """

    name: str
    what: str
    open: Callable[[], AbstractContextManager[Run]]
    seeds: Callable[[], Iterable[bytes]]
    change: Callable[[bytes, Random], bytes]
    refusals: tuple[type[Exception], ...] = ()
    words: tuple[bytes, ...] = ()
    most_bytes: int = 4_096
    renewed_after: int = 0
