"""Lines that the system writes into a job's custom status, the same on every store."""

from __future__ import annotations


def expired_status(now_ms: int, attempts_remaining: int) -> str:
    """The line that an expired claim leaves in the custom status, the same on every store."""
    return f"[claim expired at {now_ms}, attempts remaining {attempts_remaining}]\n"


def released_status(now_ms: int, attempts_remaining: int) -> str:
    """The line that a released claim leaves."""
    return f"[claim released at {now_ms}: its connection broke, attempts remaining {attempts_remaining}]\n"


def crash_budget_status(crashes: int) -> str:
    """What is added behind that line when the crash budget is used up."""
    return f"[failed: crash budget used up, {crashes} crashes]\n"


def dead_letter_status(origin: str, created_at_ms: int, attempts_allowed: int, crashes: int, now_ms: int) -> str:
    """The line in front of a dead letter's status: where it comes from and what it went through."""
    return (
        f"[dead letter of {origin}, created at {created_at_ms}, attempts allowed {attempts_allowed}, "
        f"crashes {crashes}, moved at {now_ms}]\n"
    )
