"""Why the simulation cannot find that some guards are gone."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Reason(Enum):
    """A word, and what it means."""

    OTHER_STORE = "the same guard in the words of another store: SQLite's, which simulated stores run, is planted"
    OWN_WAY = "a step that only this store needs, for an index or a record of its own"
    AT_ONCE = "it shows where two transactions are under way at once, and a simulated store carries out one at a time"
    AMOUNT = "a bound of jobs or bytes of one call, which keeps a call short and changes nothing in the end"
    COST = "without it a call costs more, and comes to the same"
    TWO_GUARDS = "another guard stands behind it, in the store or in the service, so nothing goes wrong by this alone"
    NO_CALLER = "no part of the callers makes such calls, or the server never makes them so"
    NOT_JUDGED = "what is wrong then is a text, a time or a number that no rule of the checker judges"
    AT_A_MOMENT = "it shows at one exact millisecond, which callers do not meet often enough"
    RARE = "it takes a meeting of several calls and faults that no small plan has"


REASONS: Mapping[Reason, tuple[str, ...]] = {}
