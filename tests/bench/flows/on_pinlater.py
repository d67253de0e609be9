"""The two steps as jobs of the worker framework."""

from __future__ import annotations

import os

from pinlater_workers import App
from tests.bench.flows import steps

app = App(servers=[os.environ["BENCH_BROKER"]])
app.job(queue="calculate", name="calculate")(steps.calculate)
app.job(queue="pay", name="pay")(steps.pay)
