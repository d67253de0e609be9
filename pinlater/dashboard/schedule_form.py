"""The form of a schedule, new or to be changed: nothing is saved before its next firings were shown.

A check is a dry run. The form has a hash of what was checked, so that what is saved is what was shown, and the version
that it began with, so that a change which somebody else makes meanwhile is shown, and not undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

from aiohttp import web

from pinlater.api import Api
from pinlater.dashboard.job_actions import tags_typed
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.dashboard.schedule_detail import PATH, find_schedule, name_of, shows_body
from pinlater.dashboard.schedule_list import PATH as SCHEDULES
from pinlater.dashboard.schedule_list import ScheduleRow, schedule_path
from pinlater.durations import FORMS, duration_text, parse_duration_ms
from pinlater.errors import Forbidden, PinLaterError, RecordChanged, RequestInvalid
from pinlater.http.problems import detail_of
from pinlater.job_body import secret_values
from pinlater.model import (
    MAX_TIME_MS,
    AccessAction,
    Misfire,
    Schedule,
    ScheduleChange,
    ScheduleUpdated,
    ScheduleView,
    queue_order,
)
from pinlater.schedule import utc_moment
from pinlater.timetable import zone_names
from pinlater.wire.schedule_methods import UPDATE_SCHEDULE

NEW_PATH = f"{SCHEDULES}/@new"
"""No schedule has a name with an @."""

MOST_QUEUES = 1_000
_LARGEST = 2**31 - 1
_MOMENT = "%Y-%m-%dT%H:%M"
LABELS = {
    "queue": "Queue",
    "cron": "Cron expression",
    "timezone": "Time zone",
    "every": "Every",
    "body": "Body",
    "priority": "Priority",
    "attempts": "Attempts",
    "serialize_key": "Serialize key",
    "group": "Group",
    "tags": "Tags",
    "misfire": "Misfires",
    "max_catch_up": "Most that is made up for",
    "jitter": "Jitter",
    "start": "Start",
    "end": "End",
}


@dataclass(frozen=True, slots=True)
class ScheduleFields:
    """The fields as texts. `by`: "cron" or "every"; `keeps_body`: "1", for a body that stays as it is."""

    name: str = ""
    queue: str = ""
    by: str = "cron"
    cron: str = ""
    timezone: str = "UTC"
    every: str = ""
    body: str = ""
    keeps_body: str = ""
    priority: str = "1"
    attempts: str = "2"
    serialize_key: str = ""
    group: str = ""
    tags: str = ""
    misfire: str = "run_once"
    max_catch_up: str = "10"
    jitter: str = "0s"
    start: str = ""
    end: str = ""

    @classmethod
    def of(cls, shown: Schedule, *, with_body: bool) -> ScheduleFields:
        text = editable_text(shown.body) if with_body else None
        return cls(
            shown.name,
            shown.queue,
            "cron" if shown.every_ms is None else "every",
            shown.cron,
            shown.timezone,
            "" if shown.every_ms is None else duration_text(shown.every_ms),
            text or "",
            "1" if text is None else "",
            str(shown.priority),
            str(shown.attempts_allowed),
            shown.serialize_key,
            shown.group,
            "\n".join(shown.tags),
            shown.misfire.name.lower(),
            str(shown.max_catch_up),
            duration_text(shown.jitter_ms),
            _moment_text(shown.start_ms),
            _moment_text(shown.end_ms),
        )

    @classmethod
    def sent(cls, form: Mapping[str, str], name: str) -> ScheduleFields:
        values = {each.name: form.get(each.name, "") for each in fields(cls)}
        body = values["body"].replace("\r\n", "\n")  # which browsers make of line breaks
        tags = "\n".join(tags_typed(values["tags"]))
        return cls(**{key: value.strip() for key, value in values.items()} | {"name": name, "body": body, "tags": tags})

    def digest(self, version: str) -> str:
        return sha256(repr((version, asdict(self))).encode("utf-8", "backslashreplace")).hexdigest()

    def change(self, before: Schedule | None) -> ScheduleChange:
        """What differs from the schedule as it was. RequestInvalid."""
        by_cron = self.by != "every"
        if by_cron and not self.cron:
            raise _refusal("Cron expression", "", "five fields, as in 30 3 * * 1-5")
        values: dict[str, object] = {
            "queue": self.queue,
            "cron": self.cron if by_cron else None,
            "timezone": (self.timezone or "UTC") if by_cron else None,
            "every_ms": None if by_cron else _duration_ms("Every", self.every),
            "body": None if self.keeps_body else self.body.encode(),
            "priority": _number("Priority", self.priority),
            "attempts_allowed": _number("Attempts", self.attempts),
            "serialize_key": self.serialize_key,
            "group": self.group,
            "tags": tags_typed(self.tags),
            "misfire": _misfire(self.misfire),
            "max_catch_up": _number(LABELS["max_catch_up"], self.max_catch_up),
            "jitter_ms": _duration_ms("Jitter", self.jitter or "0"),
            "start_ms": _moment_ms("Start", self.start, None if before is None else before.start_ms),
            "end_ms": _moment_ms("End", self.end, None if before is None else before.end_ms),
        }
        had = Schedule(name=self.name) if before is None else before
        values["tags"] = None if values["tags"] == tuple(had.tags) else values["tags"]
        none = {"start_ms": had.start_ms or 0, "end_ms": had.end_ms or 0}
        new = {
            name: value
            for name, value in values.items()
            if value is not None and value != none.get(name, getattr(had, name))
        }
        return ScheduleChange(name=self.name, **new)  # type: ignore[arg-type]


class Difference(NamedTuple):
    """Of one field of the form: as it is at the servers, and as the form has it."""

    label: str
    there: str
    here: str


@dataclass(slots=True)
class CheckedForm:
    """What a page shows below the fields. `wrong`: why it cannot be saved; `is_conflict`: somebody has changed the
    schedule since the form began, to what `differences` say is there.
    """

    checked: str = ""
    updated: ScheduleRow | None = None
    is_changed: bool = True
    wrong: str = ""
    is_conflict: bool = False
    there: ScheduleView | None = None
    differences: Sequence[Difference] = ()


async def new_schedule(page: Page) -> web.Response:
    _require(page)
    sent = _sent_before(page)
    if sent is not None:
        return await _check(page, sent, sent.get("name", "").strip(), None)
    return await _render(page, ScheduleFields(queue=page.query.get("queue", "")), None, "", CheckedForm())


async def edit_schedule(page: Page) -> web.Response:
    _require(page)
    view = await find_schedule(page, name_of(page), include_body=shows_body(page))
    sent = _sent_before(page)
    if sent is not None:
        return await _check(page, sent, view.schedule.name, view)
    form = ScheduleFields.of(view.schedule, with_body=shows_body(page))
    return await _render(page, form, view, view.version, CheckedForm(updated=ScheduleRow.of(view)))


async def save_new(page: Page) -> web.Response:
    page.back = SCHEDULES
    return await _check_or_save(page, page.form.get("name", "").strip(), None)


async def save_edited(page: Page) -> web.Response:
    page.back = schedule_path(page, Schedule(name=name_of(page)))
    view = await find_schedule(page, name_of(page), include_body=shows_body(page))
    return await _check_or_save(page, view.schedule.name, view)


async def _check_or_save(page: Page, name: str, view: ScheduleView | None) -> web.Response:
    """`view` is the schedule as it is now, None for a new one. What is not saved is shown by the page that has the
    form, so that a browser can go back to it.
    """
    sent, problem = page.form, ""
    if sent.get("step") == "save" and sent.get("checked") == ScheduleFields.sent(sent, name).digest(_version(sent)):
        try:
            done = await _updated(page, sent, name, view, dry_run=False)
        except Forbidden:
            raise
        except RecordChanged:
            pass  # the form says by whom, and to what
        except PinLaterError as error:
            problem = detail_of(error)
        else:
            path = schedule_path(page, done.view.schedule)
            return page.redirect(path, f"Schedule {name} is saved.", missed=done.missed_shards)
    if not page.is_live and page.keep_form():
        return page.redirect(page.request.path_qs, problem, is_bad=bool(problem))
    return await _check(page, sent, name, view)


def _sent_before(page: Page) -> Mapping[str, str] | None:
    """What the form had when it was sent, and not saved; None: it is opened."""
    refused = None if page.is_live else page.take_form()
    return dict(refused.fields) if refused is not None and refused.path == page.path else None


def _version(sent: Mapping[str, str]) -> str:
    """That of the schedule when the form was opened; "" for a new one."""
    return sent.get("version", "")


async def _updated(
    page: Page, sent: Mapping[str, str], name: str, view: ScheduleView | None, *, dry_run: bool
) -> ScheduleUpdated:
    """PinLaterError: it cannot be saved like this."""
    change = ScheduleFields.sent(sent, name).change(None if view is None else view.schedule)
    return await page.api.update_schedule(
        change, page.password, dry_run=dry_run, only_if_version=_version(sent), context=page.context
    )


async def _check(page: Page, sent: Mapping[str, str], name: str, view: ScheduleView | None) -> web.Response:
    """The form with what a save would change, or why it cannot be."""
    form, version = ScheduleFields.sent(sent, name), _version(sent)
    try:
        done = await _updated(page, sent, name, view, dry_run=True)
    except RecordChanged:
        return await _render(page, form, view, *await _conflict(page, form, view))
    except Forbidden:
        raise
    except PinLaterError as error:
        return await _render(page, form, view, version, CheckedForm(wrong=detail_of(error)))
    before = None if view is None else ScheduleFields.of(view.schedule, with_body=shows_body(page))
    differences = [] if before is None else _differences(before, form)
    checked = CheckedForm(form.digest(version), ScheduleRow.of(done.view), done.is_changed, differences=differences)
    return await _render(page, form, view, version, checked)


async def _conflict(page: Page, form: ScheduleFields, view: ScheduleView | None) -> tuple[str, CheckedForm]:
    """The version to go on from, and what is there now."""
    if view is None:
        wrong = f"There is a schedule {form.name} already. Choose another name, or change that one."
        return "", CheckedForm(wrong=wrong)
    there = ScheduleFields.of(view.schedule, with_body=shows_body(page))
    return view.version, CheckedForm(is_conflict=True, there=view, differences=_differences(there, form))


def _differences(there: ScheduleFields, here: ScheduleFields) -> list[Difference]:
    had, has = _shown(there), _shown(here)
    return [Difference(label, had[name], has[name]) for name, label in LABELS.items() if had[name] != has[name]]


def _shown(form: ScheduleFields) -> dict[str, str]:
    """The fields that count, as texts for people."""
    texts = {name: getattr(form, name) for name in LABELS}
    texts["misfire"] = texts["misfire"].replace("_", " ")
    for name in ("cron", "timezone") if form.by == "every" else ("every",):
        texts[name] = ""
    if form.keeps_body:
        texts["body"] = ""
    return texts


async def _render(
    page: Page, form: ScheduleFields, view: ScheduleView | None, version: str, checked: CheckedForm
) -> web.Response:
    queues = await page.part(lambda: page.load(Api.queue_names))
    return page.render(
        "schedule_form.html",
        form=form,
        view=view,
        version=version,
        checked=checked,
        queues=[] if isinstance(queues, PartFailed) else sorted(queues, key=queue_order)[:MOST_QUEUES],
        zones=zone_names(),
        misfires=[misfire.name.lower() for misfire in Misfire],
        can_edit_body=view is None or (shows_body(page) and editable_text(view.schedule.body) is not None),
    )


def editable_text(body: bytes) -> str | None:
    """What a form can show and send back as it was; None: it holds more than a text of lines, or secrets.

    >>> editable_text(b"a\\n\\tb"), editable_text(b"a\\r\\nb"), editable_text(bytes([255]))
    ('a\\n\\tb', None, None)
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    is_plain = all(part.isprintable() for line in text.split("\n") for part in line.split("\t"))
    return text if is_plain and not secret_values(body) else None


def _require(page: Page) -> None:
    """Forbidden."""
    if not page.rights.may_call(UPDATE_SCHEDULE):
        raise Forbidden(f"{page.who} may not change schedules")


def _refusal(label: str, text: str, allowed: str) -> RequestInvalid:
    return RequestInvalid(f"{label} is {text[:100]!r}; allowed: {allowed}")


def _number(label: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= _LARGEST):
        raise _refusal(label, text, "a whole number")
    return int(text)


def _duration_ms(label: str, text: str) -> int:
    try:
        return parse_duration_ms(text, 0, MAX_TIME_MS, bare="s")
    except ValueError:
        raise _refusal(label, text, f"as in {FORMS}") from None  # the range is the schedule's own


def _misfire(text: str) -> Misfire:
    try:
        return Misfire[text.upper()]
    except KeyError:
        raise _refusal("Misfires", text, "skip, run_once, run_all") from None


def _moment_text(ms: int | None) -> str:
    """What the form can tell of it; "" beyond its calendar."""
    moment = None if ms is None else utc_moment(ms)
    return "" if moment is None else f"{moment:{_MOMENT}}"


def _moment_ms(label: str, text: str, had_ms: int | None) -> int:
    """0 for none. What the form cannot tell of the moment that was there, its seconds, stays."""
    if text == _moment_text(had_ms):
        return had_ms or 0
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        raise _refusal(label, text, "as in 2026-11-30T03:00, in UTC") from None


PAGES = (
    PageRoute("GET", NEW_PATH, new_schedule, AccessAction.OPERATE),
    PageRoute("POST", NEW_PATH, save_new, AccessAction.OPERATE),
    PageRoute("GET", f"{PATH}/edit", edit_schedule, AccessAction.OPERATE),
    PageRoute("POST", f"{PATH}/edit", save_edited, AccessAction.OPERATE),
)
