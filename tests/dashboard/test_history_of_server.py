"""The history of a real server: real jobs that work and fail, processes that are rolled and killed, rules."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pinlater import Ack, AsyncClient, Client, DequeueRequest, Job
from pinlater.dashboard.history_file import HOUR, HistoryFile
from pinlater.dashboard.history_recorder import HistoryRecorder
from pinlater.dashboard.job_sampler import JobSampler
from pinlater.dashboard.queue_history import SPANS, History, Series
from pinlater.dashboard.queue_record import QueueRecord, unpack
from pinlater.data_folder.password import read_password_file
from pinlater.model import RequestContext
from pinlater_workers import App, Fail
from pinlater_workers.testing import run_worker
from tests.server.running import RunningServer, running
from tests.server.test_http_process import ask, port_of

LATER_MS = 60_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running(tmp_path, "--api", "127.0.0.1:0", "--data", "data", "--lease", "1s") as started:
        yield started
