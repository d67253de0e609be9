"""One queue: its jobs by priority, its workers, its settings with where each comes from, and its actions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web

from pinlater.dashboard.flow_list import flows_of_queue
from pinlater.dashboard.group_table import groups_of_queue
from pinlater.dashboard.history_view import queue_history_view
from pinlater.dashboard.letter_counts import LettersFrom, LettersIn, letters_from, letters_in
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.dashboard.queue_list import PATH as QUEUES
from pinlater.dashboard.queue_rows import QueueRow
from pinlater.dashboard.schedule_list import schedule_path, schedules_of_queue
from pinlater.model import QueueView
from pinlater.queues.settings import BREAKER, BY_NAME
from pinlater.wire.found_job_methods import CHANGE_FOUND_JOBS
from pinlater.wire.methods import DELETE_QUEUE
from pinlater.wire.operator_methods import UPDATE_QUEUE

PATH = f"{QUEUES}/{{queue}}"
GROUPS = (
    ("Speed", ("max_jobs_per_second", "max_in_progress")),
    ("Limits by group", ("group_concurrency", "group_rate", "group_max_pending", "flows_by_group")),
    ("Bounds on jobs", ("max_pending", "max_attempts", "max_body", "max_result")),
    ("Times", ("claim_timeout", "succeeded_ttl", "failed_ttl", "result_ttl")),
    ("Failures", ("crash_budget", "dead_letter_queue", "pause_on_failures")),
    ("Bodies", ("bodies",)),
)
_SHOWN_APART = frozenset(("paused", "paused_by", "paused_at", "paused_why", "paused_until", "draining", "flow_items"))
"""Settings that the page shows elsewhere, or that nobody sets."""

_SOURCES = {
    "breaker": "its circuit breaker",
    "queue": "set for this queue",
    "file": "file of queue settings",
    "default": "set for all queues",
    "file default": "file, for all queues",
    "server": "the server's default",
}


class SettingRow(NamedTuple):
    """A setting as the page shows it. `is_own`: it was set for this queue, so it can be taken back."""

    name: str
    value: str
    source: str
    is_own: bool
    help: str
    allowed: str


@dataclass(slots=True)
class SettingGroup:
    title: str
    rows: list[SettingRow]


def groups_of(view: QueueView) -> list[SettingGroup]:
    """The settings in their groups; those that only a newer server knows come last."""
    grouped = {name for _, names in GROUPS for name in names}
    others = tuple(name for name in view.settings if name not in grouped | _SHOWN_APART)
    groups = [
        SettingGroup(title, [_row(view, name) for name in names if name in view.settings])
        for title, names in (*GROUPS, ("Others", others))
    ]
    return [group for group in groups if group.rows]


def _row(view: QueueView, name: str) -> SettingRow:
    value, source = view.settings[name]
    setting = BY_NAME.get(name)
    notes = ("", "") if setting is None else (setting.help, setting.kind.allowed)
    return SettingRow(name, value, _SOURCES.get(source, source), source == "queue", *notes)


async def queue_detail(page: Page) -> web.Response:
    name = page.queue
    view = await page.snapshots.settings(page.context, name)  # QueueNotFound is the whole page
    has_flow_items = is_on(view, "flow_items")
    letter_queue = value_of(view, "dead_letter_queue")
    may_replay = page.rights.may_call(CHANGE_FOUND_JOBS, letter_queue or name)
    status, workers, history, schedules, flows, letters = await asyncio.gather(
        page.part(lambda: page.snapshots.queue(page.context, name)),
        page.part(lambda: page.snapshots.workers(page.context, name)),
        queue_history_view(page, name),
        schedules_of_queue(page, name),
        flows_of_queue(page, name, takes_items=has_flow_items),
        page.part(lambda: _letters(page, view, letter_queue, may_replay=may_replay)),
    )
    alarms, job_groups = await asyncio.gather(page.alarms_here(name), page.part(lambda: groups_of_queue(page, name)))
    rights = page.rights
    return page.render(
        "queue.html",
        name=name,
        alarms=alarms,
        row=status if isinstance(status, PartFailed) else QueueRow.of(status),
        workers=workers,
        history=history,
        groups=groups_of(view),
        job_groups=job_groups,
        is_paused=is_on(view, "paused"),
        pause={key: value_of(view, f"paused_{key}") for key in ("by", "at", "why", "until")},
        is_breaker_open=is_on(view, "paused") and value_of(view, "paused_by") == BREAKER,
        is_draining=is_on(view, "draining"),
        has_flow_items=has_flow_items,
        schedules=schedules,
        schedule_path=lambda row: schedule_path(page, row.schedule),
        flows=flows,
        dead_letter_queue=letter_queue,
        letters=letters,
        holds_letters=view.holds_dead_letters,
        failed_ttl=value_of(view, "failed_ttl"),
        may_set=rights.may_call(UPDATE_QUEUE, name),
        may_delete=rights.may_call(DELETE_QUEUE, name),
        may_replay=may_replay,
    )


async def _letters(
    page: Page, view: QueueView, letter_queue: str, *, may_replay: bool
) -> LettersFrom | LettersIn | None:
    """Its dead letters, or those that lie in it; None: there can be none, or the caller could do nothing with them."""
    if letter_queue:
        return await letters_from(page, letter_queue, view.name) if may_replay else None
    return await letters_in(page, view.name) if view.holds_dead_letters else None


def value_of(view: QueueView, name: str) -> str:
    """As people write it; "" where there is none, and of servers that do not know the setting."""
    found = view.settings.get(name)
    return "" if found is None or found.value == "none" else found.value


def is_on(view: QueueView, name: str) -> bool:
    return value_of(view, name) == "true"


PAGES = (PageRoute("GET", PATH, queue_detail),)
