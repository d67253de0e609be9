"""Inputs changed by their bytes, by their words, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

_LENGTHS = (-1, 0, 1, 2, 127, 128, 255, 256, 32_767, 65_535, 65_536, 2**24, 2**31 - 1, -(2**31))


def changed_bytes(data: bytes, dice: Random) -> bytes:
    """Bytes changed, cut out, doubled, put in, cut off, or made another length, one to four times."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 3, 4))):
        at = dice.randrange(len(out) + 1)
        end = min(len(out), at + dice.choice((1, 1, 2, 4, 8, 32)))
        match dice.randrange(8):
            case 0 if at < len(out):
                out[at] = dice.randrange(256)
            case 1 if at < len(out):
                out[at] ^= 1 << dice.randrange(8)
            case 2:
                del out[at:end]
            case 3:
                out[at:at] = out[at:end] * dice.choice((1, 1, 2, 50))
            case 4:
                out[at:at] = dice.randbytes(dice.randint(1, 8))
            case 5:
                out[at : at + 4] = dice.choice(_LENGTHS).to_bytes(4, dice.choice(("big", "big", "little")), signed=True)
            case 6 if dice.random() < 0.3:
                del out[at:]
            case _:
                other = dice.randrange(len(out) + 1)
                out[at:at] = out[other : other + (end - at)]
    return bytes(out)


def by_words(words: Sequence[bytes]) -> Callable[[bytes, Random], bytes]:
    """Changes a text by the words of its language: some are put in, exchanged or repeated; else by its bytes."""

    def changed(data: bytes, dice: Random) -> bytes:
        if dice.random() < 0.4:
            return changed_bytes(data, dice)
        out = data
        for _ in range(dice.choice((1, 1, 2, 3))):
            at = dice.randrange(len(out) + 1)
            end = at if dice.random() < 0.5 else min(len(out), at + dice.randint(1, 12))
            word = dice.choice(words)
            out = out[:at] + word * dice.choice((1, 1, 1, 1, 2, 40)) + out[end:]
        return out

    return changed


_VALUES = (
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**53,
    2**63,
    2**64,
    -(2**63),
    10**30,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "0",
    "word",
    "\u0000",
    "\ud800",
    "\U0001f600" * 10,
    "x" * 500,
    [],
    {},
    [[]],
    {"": None},
)

_DEEP = "a value of many levels"
"""Stands for one until it is written, as the writer of JSON has a bound."""


def changed_json(data: bytes, dice: Random) -> bytes:
    """A document of JSON with other values, keys, depths and lengths; what is none is changed by its bytes."""
    if dice.random() < 0.25:
        return changed_bytes(data, dice)
    if b"\n" in data:
        lines = data.split(b"\n")
        at = dice.randrange(len(lines))
        return b"\n".join([*lines[:at], changed_json(lines[at], dice), *lines[at + 1 :]])
    try:
        document = json.loads(data)
        for _ in range(dice.choice((1, 1, 2, 3))):
            document = changed_value(document, dice)
        text = json.dumps(document, ensure_ascii=dice.random() < 0.5)
    except (ValueError, RecursionError):
        return changed_bytes(data, dice)
    if _DEEP in text:
        levels = dice.choice((1, 100, 1_500))
        text = text.replace(
            f'"{_DEEP}"', dice.choice(("[" * levels + "]" * levels, '{"a":' * levels + "1" + "}" * levels))
        )
    return text.encode("utf-8", "surrogatepass")


def changed_value(value: Any, dice: Random) -> Any:
    """Another one where it is, or somewhere inside."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        key = dice.choice(list(value))
        match dice.randrange(8):
            case 0:
                return {each: value[each] for each in value if each != key}
            case 1:
                return {**value, dice.choice(("", "x", key + "x", key.upper())): value[key]}
            case 2:
                return {**value, key: value[dice.choice(list(value))]}
            case _:
                return {**value, key: changed_value(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.85:
        at = dice.randrange(len(value))
        match dice.randrange(6):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value * dice.choice((2, 3, 100))
            case _:
                return [*value[:at], changed_value(value[at], dice), *value[at + 1 :]]
    if isinstance(value, str) and dice.random() < 0.5:
        return changed_bytes(value.encode("utf-8", "surrogatepass"), dice).decode("utf-8", "replace")
    if isinstance(value, int) and dice.random() < 0.3:
        return value + dice.randint(-3, 3)
    return _DEEP if dice.random() < 0.05 else dice.choice(_VALUES)
