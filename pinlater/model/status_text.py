"""The custom status of a job: how texts are added to it, and which part of it survives its bound.

Stores that add texts by themselves (a script, a statement) follow these functions. docs/semantics.md, decision 2.
"""

from __future__ import annotations

from pinlater.model.jobs import MAX_STATUS_CHARS

CUT_MARK = "…\n"
"""Stands where a status lost its end to a text that came behind it."""

MAX_WITH_MARK = MAX_STATUS_CHARS - len(CUT_MARK)


def append_at(text: str) -> tuple[int, str]:
    """For a text to be put behind a status: from which character on, counted from 1, the status gives way to CUT_MARK,
    and the text. A shorter status stays whole. So the newest text survives, and the front of the status.
    """
    text = text[:MAX_WITH_MARK]
    return (MAX_WITH_MARK + 1 - len(text) if text else MAX_STATUS_CHARS + 1), text


def append_status(status: str, at: int, text: str) -> str:
    """As `append_at` says."""
    return (status if len(status) < at else status[: at - 1] + CUT_MARK) + text


def prepend_status(status: str, text: str) -> str:
    """The end of the status is cut."""
    return (text + status)[:MAX_STATUS_CHARS]


NOT_REPLACED, NOT_REPLACED_END = "[newer arguments were not taken from ", " on, while it was in progress]\n"


def not_replaced_status(now_ms: int) -> str:
    """The line of a job in progress that an enqueue with REPLACE found: the first since the line before it."""
    return f"{NOT_REPLACED}{now_ms}{NOT_REPLACED_END}"


NEWER_WAITS, NEWER_WAITS_BEFORE_NAME, NEWER_WAITS_END = "[a newer job of its key waits from ", " on: ", "]\n"


def newer_waits_status(now_ms: int, successor: str) -> str:
    """The line of a job in progress that got a successor."""
    return f"{NEWER_WAITS}{now_ms}{NEWER_WAITS_BEFORE_NAME}{successor}{NEWER_WAITS_END}"


def job_expired_status(now_ms: int, expires_at_ms: int) -> str:
    """The line of a job that ended because its time was over before it could be handed out."""
    return f"[failed: EXPIRED at {expires_at_ms}, ended at {now_ms}]\n"
