"""The payroll of a month as a flow, all of it: a server, a worker, people who are added while others are paid, the tree
as it fills, and a report. `./scripts/demo --payroll` runs it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import batched

from payroll import NO_CONTRACT, app, booked, calculated, close_month, open_ledger, payroll, sent
from processes import OUTPUT, ExampleFailed, check, make_anew, server, worker

from pinlater.cli.flow_views import show_looks
from pinlater.model.flow_words import FlowStatus
from pinlater_workers import EndedItem, FlowRun

MONTH = "2026-11"
PEOPLE = 240
"""So many are added, some at a time."""

AT_A_TIME, PAUSE_S = 20, 0.2
LOOK_MS = 200
CLOSED_WITHIN_S = 30.0
