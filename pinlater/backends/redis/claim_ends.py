"""The arguments and answers of the scripts that end claims: status lines, and claims that expired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinlater.backends.base import EndRules, ExpiredClaim
from pinlater.backends.redis.records import CHANGED, CLAIM, ID
from pinlater.backends.status_lines import crash_budget_status, dead_letter_status

PLACEHOLDER = -1
"""Stands for a number where a line is made to be cut up."""


def expiry_templates(line: str) -> list[str]:
    """What stands around the number of attempts in a status line, and around the crashes in the one behind it."""
    return [*line.split(str(PLACEHOLDER)), *crash_budget_status(PLACEHOLDER).split(str(PLACEHOLDER))]


def expiry_rules(rules: EndRules) -> tuple[int, int]:
    """What the scripts that end expired claims are told of the rules of a queue."""
    return rules.crash_budget, int(rules.dead_letters)


def expired_claims(flat: Sequence[Any]) -> list[ExpiredClaim]:
    """The claims that a script described by five values each (see expired_claims.lua)."""
    claims, parts = [], iter(flat)
    for job_id, expiry, claim, changed, is_to_stop in zip(*[parts] * 5, strict=True):
        _, _, allowed, priority = CLAIM.unpack_from(claim)
        remaining, crashes = allowed, 0
        if changed:
            _, remaining, allowed, crashes = CHANGED.unpack_from(changed)
        attempts = (allowed, remaining, crashes)
        key = (priority, ID.unpack(job_id)[0], claim[CLAIM.size :].decode())
        claims.append(ExpiredClaim(*key, int(expiry), *attempts, bool(is_to_stop)))
    return claims


def history_templates(now_ms: int) -> list[str]:
    """What stands around the origin, its time, its attempts and its crashes in a dead letter's history."""
    return dead_letter_status(str(PLACEHOLDER), PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, now_ms).split(str(PLACEHOLDER))
