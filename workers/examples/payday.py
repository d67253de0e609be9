"""The payroll of a month as a flow, all of it: a server, a worker, people who are added while others are paid, the tree
as it fills, and a report. `./scripts/demo --payroll` runs it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any

from payroll import NO_CONTRACT, app, close_month, open_ledger, payroll, sent
from processes import OUTPUT, ExampleFailed, check, make_anew, server, worker

from pinlater.cli.flow_views import show_looks
from pinlater.model.flow_words import FlowStatus
from pinlater_workers import EndedItem, FlowRun

MONTH = "2026-11"
PEOPLE = 240
AT_A_TIME, PAUSE_S = 20, 0.2
"""So many people are added, then so long none."""

LOOK_MS = 200
CLOSED_WITHIN_S = 30.0

Ended = Mapping[str, list[EndedItem[Any]]]
"""By their stages."""


def pay_all() -> int:
    """The exit code: 0 all but the one without a contract are paid once; 1 they are not."""
    folder = OUTPUT / "payroll"
    make_anew(folder)
    os.environ["PAYROLL_FOLDER"] = str(folder)  # for open_ledger, here and in the worker
    with ExitStack() as stack:
        serving = stack.enter_context(server())
        app.use(servers=[serving.address], source="demo")
        stack.callback(app.close)
        for queue in {stage.declared.queue for stage in payroll.stages.values()}:
            app.client.create_queue(queue)
        working = stack.enter_context(worker("payroll:app", serving.address, "--concurrency", "8"))
        print(f"A server on SQLite listens on {serving.address}; a worker (pid {working.pid}) waits for items.\n")
        run = payroll.start(dedupe_key=MONTH, metadata={"month": MONTH}, on_complete=close_month)
        show_looks(_paid(run, serving.process, working))
        ended: Ended = {stage.name: list(run.results(stage)) for stage in payroll.stages.values()}
        _wait_for_the_callback(serving.process, working)
        return _show(run, ended)


def _paid(run: FlowRun, *processes: subprocess.Popen[str]) -> Iterator[FlowStatus]:
    """Looks at the flow: while people are added, and until it is over."""
    people = [{"user": user, "hours": 100 + user % 60} for user in range(1, PEOPLE + 1)]
    for first in range(0, PEOPLE, AT_A_TIME):
        run.add(people[first : first + AT_A_TIME])
        yield run.status()
        time.sleep(PAUSE_S)
    run.seal()
    while True:
        status = app.client.get_flow(run.id, wait_ms=LOOK_MS)
        yield status
        if status.completed_ms is not None:
            return
        check(*processes)


def _wait_for_the_callback(*processes: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + CLOSED_WITHIN_S
    while not _ledger("SELECT count(*) FROM closed"):
        check(*processes)
        if time.monotonic() > deadline_s:
            raise ExampleFailed("the callback does not come")
        time.sleep(LOOK_MS / 1_000)


def _ledger(question: str) -> int:
    with closing(open_ledger()) as ledger:
        return int(ledger.execute(question).fetchone()[0] or 0)


def _show(run: FlowRun, ended: Ended) -> int:
    """The table, after the failures of each item that failed."""
    failed = [item for items in ended.values() for item in items if not item.succeeded]
    for item in failed:
        why = " (on purpose)" if item.payload["user"] == NO_CONTRACT else ""
        print(f"\nFAILED item {item.number} of stage {item.stage}{why}: {item.payload}; its failures:")
        for failure in item.failures:
            print(f"  {failure.reason.splitlines()[0]}")
    checks, cents = _ledger("SELECT count(*) FROM checks"), _ledger("SELECT sum(cents) FROM checks")
    rows = [
        ("people", f"{PEOPLE:,}"),
        ("checks sent", f"{sum(item.succeeded for item in ended[sent.name]):,}"),
        ("at the second try", f"{sum(item.succeeded and len(item.failures) > 0 for item in ended[sent.name]):,}"),
        ("checks booked", f"{checks:,}"),
        ("amount booked", f"{cents / 100:,.2f}"),
        ("failed", f"{len(failed):,}"),
        ("months closed", str(_ledger("SELECT count(*) FROM closed"))),
        ("flow", run.id),
    ]
    width = max(len(name) for name, _ in rows)
    print()
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    return 0 if checks == PEOPLE - 1 and len(failed) == 1 else 1
