"""Targets of many small readers: the first byte of an input says which of them reads the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.fuzz.faults import FaultFound
from tests.fuzz.target import Run, Target


class Refused(Exception):
    """An input that its reader refuses, as documented."""


@dataclass(frozen=True)
class Reader:
    """`read` takes bytes; `refusals` are what it documents for those that are no valid ones."""

    name: str
    read: Callable[[bytes], Any]
    seeds: Sequence[bytes]
    refusals: tuple[type[Exception], ...] = ()
    text: bool = False
    """It takes a text: what is no UTF-8 never comes to it."""


def target_of(
    name: str,
    what: str,
    readers: Sequence[Reader],
    change: Callable[[bytes, Random], bytes],
    words: Sequence[bytes] = (),
    most_bytes: int = 4_096,
) -> Target:
    @contextmanager
    def opened() -> Iterator[Run]:
        yield lambda data: _read(readers[data[0] % len(readers)], data[1:]) if data else None

    def seeds() -> Iterator[bytes]:
        for number, reader in enumerate(readers):
            for seed in reader.seeds:
                yield bytes((number,)) + seed

    def changed(data: bytes, dice: Random) -> bytes:
        return data[:1] + change(data[1:], dice)

    return Target(name, what, opened, seeds, changed, (Refused,), tuple(words), most_bytes)


def _read(reader: Reader, data: bytes) -> None:
    if reader.text:
        try:
            data.decode()
        except UnicodeDecodeError:
            raise Refused from None
    try:
        reader.read(data)
    except reader.refusals:
        raise Refused from None
    except (Refused, FaultFound):
        raise
    except Exception as error:
        raise FaultFound(f"{reader.name} raises {type(error).__name__}: {error}") from error
