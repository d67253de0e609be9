"""Status lines as the scripts take them: the words around the numbers that only a script knows."""

from __future__ import annotations

from pinlater.backends.base import EndRules, buried_status, crash_budget_status

MARK = -1
"""Stands for a number where a line is made to be cut up."""


def lapse_words(line: str) -> list[str]:
    """What stands around the number of attempts in a status line, and around the crashes in the one behind it."""
    return [*line.split(str(MARK)), *crash_budget_status(MARK).split(str(MARK))]


def lapse_rules(rules: EndRules) -> tuple[int, int]:
    """What the scripts that end lapsed claims are told of the rules of a queue."""
    return rules.crash_budget, int(rules.dead_letters)


def buried_words(now_ms: int) -> list[str]:
    """What stands around the origin, its time, its attempts and its crashes in a dead letter's history."""
    return buried_status(str(MARK), MARK, MARK, MARK, now_ms).split(str(MARK))
