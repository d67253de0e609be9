"""Names close to an unknown one, for the error that refuses it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def meant_name(name: str, known: Iterable[str]) -> str:
    """What stands behind the known names, or nothing where none is close.

    >>> meant_name("prot", ["port", "host"]), meant_name("colour", ["port", "host"])
    (' (did you mean port?)', '')
    """
    names = list(known)
    is_long = len(name) > 2 * max(map(len, names), default=0)  # what is compared costs as much as it is long
    close = [] if is_long else difflib.get_close_matches(name, names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
