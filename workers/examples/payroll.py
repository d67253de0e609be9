"""A payroll: what each person is paid is calculated, a check is sent, and the ledger has it; when all is done the month
is closed.

    ./scripts/demo --payroll                                                # all of it (payday.py)
    PAYROLL_FOLDER=/tmp pinlater-worker --app payroll:app --create-queues   # a worker alone, in this folder

A job may come twice (delivery is at least once), but its result counts once. So a check has a number that is the same
in every attempt, by which a bank knows it, and the ledger has one line for each number.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from pinlater_workers import App, Batch, Flow, FlowEnd, current

CENTS_PER_HOUR = 4_250
NO_CONTRACT = 13
"""The person whose pay cannot be calculated, on purpose."""

app = App()


@dataclass
class Check:
    number: str
    cents: int


@app.job(queue="payroll", unique="{user}")
def calculate_pay(user: int, hours: int) -> int:
    """Cents. `unique`: a person who is added twice is paid once."""
    if user == NO_CONTRACT:
        raise LookupError(f"person {user} has no contract")
    return hours * CENTS_PER_HOUR


@app.job(queue="checks")
async def send_check(user: int, cents: int) -> Check:
    """The bank takes its time, and does not answer every twentieth at first."""
    await asyncio.sleep(0.03)
    if user % 20 == 7 and current().attempt == 1:
        raise ConnectionError("the bank does not answer")
    return Check(f"2026-11/{user}", cents)


@app.job(queue="ledger", batch=50, wait="50ms")
def book(batch: Batch[Check]) -> None:
    """One transaction for up to 50 checks."""
    with closing(open_ledger()) as ledger, ledger:
        ledger.executemany("INSERT OR IGNORE INTO checks VALUES (:number, :cents)", map(asdict, batch.arguments))


@app.job(queue="payroll")
def close_month(flow: FlowEnd) -> None:
    """The callback: the flow is over."""
    with closing(open_ledger()) as ledger, ledger:
        ledger.execute("INSERT OR IGNORE INTO closed VALUES (?, ?)", (flow.metadata["month"], flow.state))


payroll = Flow("payroll")
calculated = payroll.stage(calculate_pay, max_failures=2, backoff="200ms")
sent = calculated.then(send_check, payload="{user: payload.user, cents: result}", max_failures=5, backoff="500ms")
booked = sent.then(book, payload="result", final=True)


def open_ledger() -> sqlite3.Connection:
    ledger = sqlite3.connect(Path(os.environ["PAYROLL_FOLDER"]) / "ledger.db", timeout=30)
    ledger.execute("CREATE TABLE IF NOT EXISTS checks (number TEXT PRIMARY KEY, cents INTEGER)")
    ledger.execute("CREATE TABLE IF NOT EXISTS closed (month TEXT PRIMARY KEY, state TEXT)")
    return ledger
