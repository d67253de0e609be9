"""The app of pool_traces, as a worker imports it: with what it sets for all its jobs."""

from __future__ import annotations

from tests.workers.apps.pool_traces import app as app
from tests.workers.apps.pool_traces import set_up

set_up()
