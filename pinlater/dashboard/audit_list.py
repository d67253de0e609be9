"""The audit: what operators changed, and what was refused, the latest first; by words, and page by page."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from aiohttp import web

from pinlater.dashboard.page import Page, PageRoute
from pinlater.errors import ContinuationInvalid
from pinlater.model import AccessAction, AuditEntry

PATH = "/dashboard/audit"
PAGE_SIZE = 100
MOST_LOOKED_AT = 2_000
"""For one page; where a filter finds little, the reader goes on from there."""

_SLICE = 500
_CURSOR = re.compile(r"([0-9]{1,15})-([0-9]{1,6})", re.ASCII)


@dataclass(slots=True)
class AuditPage:
    """Entries that match, how many were looked at for them, and where the next page begins ("" at the end)."""

    entries: list[AuditEntry] = field(default_factory=list)
    examined: int = 0
    until_ms: int | None = None
    cursor: str = ""


async def load(page: Page, words: list[str], cursor: str) -> AuditPage:
    """The cursor is the millisecond of the last entry that was looked at, and how many entries of it were.
    ContinuationInvalid.
    """
    found = AuditPage()
    match = _CURSOR.fullmatch(cursor)
    if cursor and match is None:
        raise ContinuationInvalid("the place where this page was to begin is none that a page before has given")
    before_ms, seen = (int(match[1]) + 1, int(match[2])) if match is not None else (None, 0)
    while True:
        entries = await page.api.audit(limit=_SLICE + seen, before_ms=before_ms, context=page.context)
        is_last = len(entries) < _SLICE + seen
        for index, entry in enumerate(entries[seen:], seen):
            found.examined += 1
            found.until_ms = entry.at_ms
            if _matches(entry, words):
                found.entries.append(entry)
            if len(found.entries) == PAGE_SIZE or found.examined == MOST_LOOKED_AT:
                rest = index + 1 < len(entries) or not is_last
                found.cursor = "{}-{}".format(*_behind(entries[: index + 1])) if rest else ""
                return found
        if is_last or not entries:
            return found
        at_ms, seen = _behind(entries)
        before_ms = at_ms + 1


def _behind(entries: list[AuditEntry]) -> tuple[int, int]:
    """The millisecond of the last of these entries, and how many of them are of it."""
    at_ms = entries[-1].at_ms
    return at_ms, sum(each.at_ms == at_ms for each in entries)


def _matches(entry: AuditEntry, words: list[str]) -> bool:
    """Each word is somewhere in it."""
    text = f"{entry.who} {entry.action} {entry.target} {entry.detail} {entry.server}".lower()
    return all(word in text for word in words)


async def audit_list(page: Page) -> web.Response:
    text, cursor = page.query.get("filter", "").strip(), page.query.get("cursor", "")
    words = text.lower().split()
    found = await page.part(
        lambda: page.snapshots.get(page.context, ("audit", *words, cursor), lambda: load(page, words, cursor))
    )
    return page.render("audit.html", audit=found, filter=text, is_first=not cursor)


PAGES = (PageRoute("GET", PATH, audit_list, AccessAction.OPERATE),)
