"""Every page of the dashboard, with what it shows of the seeded data. One that is missing here fails test_pages.py."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from tests.browser.seed import Seeded


class ShownPage(NamedTuple):
    """`route`: its address as the product's table has it; `path`: one of its kind, with names of seeded things in
    braces. `texts` are to be read on it, and so is the planted markup of `fields`. `changes`: it is a form for those
    who may change something.
    """

    name: str
    route: str
    path: str
    texts: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    changes: bool = False

    def address(self, seeded: Seeded) -> str:
        things = {**seeded.jobs, "flow": seeded.flow}
        return self.path.format_map({name: quote(thing, safe="") for name, thing in things.items()})


_BASE = "/dashboard"
_JOB = f"{_BASE}/jobs/{{descriptor}}"
_FILTER = f"{_BASE}/jobs?filter=queue:mail%20state:"
PAGES = (
    ShownPage("overview", _BASE, _BASE, ("mail", "images")),
    ShownPage("queues", f"{_BASE}/queues", f"{_BASE}/queues", ("mail", "held", "empty")),
    ShownPage("queue", f"{_BASE}/queues/{{queue}}", f"{_BASE}/queues/mail", ("mail", "dead_letter_queue", "mail_dead")),
    ShownPage("paused queue", f"{_BASE}/queues/{{queue}}", f"{_BASE}/queues/held", (), ("reason",)),
    ShownPage("queue of items", f"{_BASE}/queues/{{queue}}", f"{_BASE}/queues/pay", ("payroll",)),
    ShownPage("jobs", f"{_BASE}/jobs", f"{_BASE}/jobs"),
    ShownPage("failed jobs", f"{_BASE}/jobs", f"{_FILTER}failed", ("mail",), ("error",)),
    ShownPage("jobs by their status", f"{_BASE}/jobs", f"{_FILTER}succeeded%20status:~planted", ("mail",), ("ending",)),
    ShownPage("a new job", f"{_BASE}/jobs/new", f"{_BASE}/jobs/new?queue=mail", ("Arguments",), changes=True),
    ShownPage("what filters are", f"{_BASE}/jobs/filters", f"{_BASE}/jobs/filters", ("state", "body")),
    ShownPage("failed job", _JOB, f"{_BASE}/jobs/{{failed}}", (), ("error", "frame")),
    ShownPage("running job", _JOB, f"{_BASE}/jobs/{{running}}", (), ("source", "progress")),
    ShownPage("scheduled job", _JOB, f"{_BASE}/jobs/{{scheduled}}", ("for later",)),
    ShownPage("runs", f"{_BASE}/runs", f"{_BASE}/runs", ("Runs",)),
    ShownPage(
        "question of a run",
        f"{_BASE}/runs/new",
        f"{_BASE}/runs/new?action=retry&which=all&filter=queue:mail%20state:failed",
        ("2 jobs",),
        changes=True,
    ),
    ShownPage("flows", f"{_BASE}/flows", f"{_BASE}/flows", ("payroll",), ("flow-key",)),
    ShownPage("flow", f"{_BASE}/flows/{{flow}}", f"{_BASE}/flows/{{flow}}", ("calculate", "pay"), ("stage-type",)),
    ShownPage("schedules", f"{_BASE}/schedules", f"{_BASE}/schedules", ("nightly.report",), ("maker",)),
    ShownPage("schedule", f"{_BASE}/schedules/{{name}}", f"{_BASE}/schedules/nightly.report", ("0 3 * * *",)),
    ShownPage("new schedule", f"{_BASE}/schedules/@new", f"{_BASE}/schedules/@new", ("Time zone",), changes=True),
    ShownPage(
        "edited schedule",
        f"{_BASE}/schedules/{{name}}/edit",
        f"{_BASE}/schedules/hostile:every-hour/edit",
        (),
        ("maker",),
        changes=True,
    ),
    ShownPage("workers", f"{_BASE}/workers", f"{_BASE}/workers", ("mailer",), ("worker",)),
    ShownPage("cluster", f"{_BASE}/cluster", f"{_BASE}/cluster", ("Shards",)),
    ShownPage(
        "audit", f"{_BASE}/audit", f"{_BASE}/audit?filter=hostile", ("update schedule",), ("source",), changes=True
    ),
)
AFTER_A_CHANGE = {f"{_BASE}/runs/{{run}}"}
"""Pages of what only a change makes: test_runs.py has it."""

DATA = {
    f"{_BASE}/jobs/completions": f"{_BASE}/jobs/completions?text=queue:<script>",
    f"{_BASE}/jobs/{{descriptor}}/body": f"{_BASE}/jobs/{{markup}}/body",
    f"{_BASE}/jobs/{{descriptor}}/result": f"{_BASE}/jobs/{{succeeded}}/result",
    f"{_BASE}/flows/{{flow}}/items/{{item:[0-9]{{1,18}}}}/{{what:payload|result}}": (
        f"{_BASE}/flows/{{flow}}/items/1/result"
    ),
    f"{_BASE}/schedules/{{name}}/body": f"{_BASE}/schedules/hostile:every-hour/body",
}
"""What is no page: texts for scripts, and files to keep. One address of each, with seeded names in braces."""
