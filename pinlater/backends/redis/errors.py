"""What an error of Redis means: did the call surely change nothing, or is its outcome unknown?"""

from __future__ import annotations

import re

from pinlater.errors import NothingStored, OutcomeUnknown, ShardConnectionFailed, StoreFull

_REFUSED = frozenset(
    (
        *("ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOPERM"),
        *("NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "WRONGPASS"),
    )
)
"""Redis answers these before it runs anything."""

_REFUSED_WRITE = frozenset(["MISCONF", "NOREPLICAS", "OOM", "READONLY"])
"""Redis answers these inside a script at its first write or at none."""

_INSIDE_SCRIPT = re.compile(r"user_script|script: ")
_CODE_INSIDE = re.compile(r"-(" + "|".join(sorted(_REFUSED_WRITE)) + r")\b")
_BEFORE_ANY_COMMAND = ("ERR max number of clients reached", "ERR unknown command", "ERR invalid password")


FULL = "its memory is used up (maxmemory): raise maxmemory, or let jobs end and be removed"


class ReplyError(Exception):
    """An error that Redis answered, without the arguments that it repeats; `code` is its first word."""

    def __init__(self, text: str) -> None:
        super().__init__(text.partition(", with args beginning with:")[0])

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


def mapped(error: ReplyError) -> ShardConnectionFailed:
    """NothingStored where Redis surely refused the whole call, StoreFull for lack of memory, else OutcomeUnknown."""
    text = str(error)
    if _INSIDE_SCRIPT.search(text):
        inside = _CODE_INSIDE.search(text)
        code = error.code if inside is None else inside[1]
        refused = code in _REFUSED_WRITE
    else:
        code = error.code
        refused = error.code in _REFUSED or text.startswith(_BEFORE_ANY_COMMAND)
    if refused and code == "OOM":
        return StoreFull(f"redis: {FULL} ({text})")
    return NothingStored(f"redis: {text}") if refused else OutcomeUnknown(f"redis: {text}")


def is_read_only(error: ReplyError) -> bool:
    """Redis is a replica."""
    return re.search(r"\bREADONLY\b", str(error)) is not None
