"""The forms of searches for jobs, and of changes to all jobs that a search finds, as JSON."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from pinlater.http.forms import ActionWord, Count, Descriptor, Form, Group, Key, Pattern, Priority, Tags, Time, Wanted
from pinlater.http.operator_forms import Limit
from pinlater.model import MAX_TIME_MS

PhaseWord = Literal["ready", "scheduled", "waiting", "in_progress", "succeeded", "failed", "cancelled", "replayed"]
Attempts = Annotated[int, Meta(ge=0, le=2**31 - 1)]
MaxMs = Annotated[
    int, Meta(ge=1, le=MAX_TIME_MS, description="Answer after so many milliseconds with what was done by then.")
]


class TextConditionForm(Form):
    """An RE2 pattern that is found in a text; with `is_not` it is not."""

    regex: Pattern
    is_not: bool = False


class SelectionForm(Form):
    """The jobs that meet all conditions. Of `phases` and `priorities` one is enough.

    What is left out does not count. An empty list of `phases`, `priorities` or `descriptors`, and an empty key mean no
    job at all. A job that has not ended meets no condition on its end. Attempts are those that were taken. `tags`: jobs
    that have all of these. `origin_queue`: copies of jobs of that queue, as its dead letters are. `group`: jobs of that
    group alone.
    """

    phases: list[PhaseWord] | None = None
    priorities: list[Priority] | None = None
    body_conditions: list[TextConditionForm] = []
    status_conditions: list[TextConditionForm] = []
    created_before_ms: Time | None = None
    created_after_ms: Time | None = None
    updated_before_ms: Time | None = None
    updated_after_ms: Time | None = None
    ended_before_ms: Time | None = None
    ended_after_ms: Time | None = None
    min_attempts: Attempts | None = None
    max_attempts: Attempts | None = None
    dedupe_key: Key | None = None
    serialize_key: Key | None = None
    origin_queue: str | None = None
    group: Group | None = None
    descriptors: list[Descriptor] | None = None
    tags: Tags = []


class SearchForm(SelectionForm):
    """A search for jobs. A page may be empty, and yet have a cursor for the next one: its time was over."""

    limit: Limit = 100
    include_body: bool = False
    max_ms: MaxMs | None = None
    cursor: str = ""
    encoding: Wanted = "text"


class FoundJobsChangeForm(SelectionForm, kw_only=True):
    """One slice of a change to all jobs of a selection; the next one takes the cursor that it answers with.

    `running`: a cancel also asks the workers of jobs in progress to stop. `is_last`: no slice follows, so the audit
    gets the sum of this run; with a `limit` of 0 nothing more is done. `note` is a text for the audit.
    """

    action: ActionWord
    limit: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 1000
    dry_run: bool = False
    attempts: Count | None = None
    run_after_ms: Time | None = None
    running: bool = False
    max_ms: MaxMs | None = None
    is_last: bool = False
    note: str = ""
    cursor: str = ""
    encoding: Wanted = "text"

    SOURCES: ClassVar = {"running": "stops_running"}
