"""Every page of the dashboard, with what it shows of the seeded data. One that is missing here fails test_pages.py."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from pinlater.dashboard.site import TABLES
from tests.browser.seed import Seeded


class ShownPage(NamedTuple):
    """`route`: its address as the product's table has it; `path`: one of its kind, with names of seeded things in
    braces. `texts` are to be read on it, and so is the planted markup of `fields`.
    """

    name: str
    route: str
    path: str
    texts: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()

    def address(self, seeded: Seeded) -> str:
        things = {**seeded.jobs, "flow": seeded.flow}
        return self.path.format_map({name: quote(thing, safe="") for name, thing in things.items()})


_JOB = "/dashboard/jobs/{descriptor}"
_ALL = (
    ShownPage("overview", "/dashboard", "/dashboard", ("mail", "images")),
    ShownPage("queues", "/dashboard/queues", "/dashboard/queues", ("mail", "held", "empty")),
    ShownPage("queue", "/dashboard/queues/{queue}", "/dashboard/queues/mail", ("mail", "dead_letter_queue")),
    ShownPage("paused queue", "/dashboard/queues/{queue}", "/dashboard/queues/held", (), ("reason",)),
    ShownPage("jobs", "/dashboard/jobs", "/dashboard/jobs?filter=queue:mail%20state:failed", ("mail",), ("ending",)),
    ShownPage("failed job", _JOB, "/dashboard/jobs/{failed}", (), ("error", "frame")),
    ShownPage("flows", "/dashboard/flows", "/dashboard/flows", ("payroll",)),
    ShownPage("flow", "/dashboard/flows/{flow}", "/dashboard/flows/{flow}", ("calculate", "pay")),
    ShownPage("schedules", "/dashboard/schedules", "/dashboard/schedules", ("nightly.report",)),
    ShownPage("schedule", "/dashboard/schedules/{name}", "/dashboard/schedules/nightly.report", ("0 3 * * *",)),
    ShownPage("workers", "/dashboard/workers", "/dashboard/workers", ("mailer",), ("worker",)),
    ShownPage("cluster", "/dashboard/cluster", "/dashboard/cluster", ()),
    ShownPage("audit", "/dashboard/audit", "/dashboard/audit", ("pause",)),
    ShownPage("runs", "/dashboard/runs", "/dashboard/runs", ()),
)
ROUTES = {route.path for table in TABLES for route in table if route.verb == "GET"}
PAGES = tuple(page for page in _ALL if page.route in ROUTES)
