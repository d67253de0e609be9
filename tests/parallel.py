"""Several pytest workers at once (`-n 3`): which tests stay together, and what the workers tell the run as a whole.

A worker takes whole files, so that what a module starts is started once. Folders in TOGETHER, whose files share what
takes long to start, go to one worker whole.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER = {"tests/browser", "tests/cluster", "tests/extremes", "tests/languages"}
COLUMNS = "tests/kits/test_trial.py"
"""A worker takes a column of it, the kit of one language, which is built and started once."""

NEVER_AT_ONCE = "tests/workers/test_proof_"
"""Files that begin so go to one worker, one after the other: each keeps the machine busy."""

FIRST = (
    "tests/cluster/",  # its proofs go by the clock: beside them runs what needs one processor
    "tests/soak/",
    "tests/conformance/",
    "tests/workers/test_proof_",  # beside them runs what is not timed
    "tests/faults/test_kills.py",  # needs all there is: beside it runs what has time
    "tests/packaging/test_packages.py",
    "tests/workers/test_heartbeat",
    "tests/faults/",
    "tests/kits/",  # wait most of their time
    "tests/languages/",
    "tests/browser/",
    "tests/server/test_serve.py",
    "tests/server/test_reload.py",
    "tests/server/test_planted_secrets.py",
    "tests/server/test_processes.py",
    "tests/server/test_operator_password.py",
    "tests/server/test_frames.py",
    "tests/server/test_full_stores.py",
    "tests/server/test_overflow.py",
    "tests/server/",
    "tests/workers/",
)
"""What takes long comes first, and the quick files of tests/unit at the end: so all workers end at about one time."""


def scope_of(nodeid: str) -> str:
    """The file of a test, its folder, or its column.

    >>> scope_of("tests/kits/test_trial.py::test_row[go-runs-once]")
    'tests/kits/test_trial.py go'
    """
    path, _, test = nodeid.partition("::")
    if path == COLUMNS:
        return f"{path} {re.split(r'[][-]', test)[1]}"
    if path.startswith(NEVER_AT_ONCE):
        return NEVER_AT_ONCE
    folder = "/".join(path.split("/")[:2])
    return folder if folder in TOGETHER else path


def turn_of(nodeid: str) -> int:
    """When it is the turn of a test, lowest first."""
    return next((turn for turn, path in enumerate(FIRST) if nodeid.startswith(path)), len(FIRST))


class ByFile(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


class Worker(Protocol):
    """What xdist tells of a worker that has ended; `workeroutput` is missing where it crashed."""

    config: pytest.Config
    workeroutput: dict[str, Any]


def is_worker(config: pytest.Config) -> bool:
    """Whether this process runs a part of the tests, and another one the whole."""
    return hasattr(config, "workerinput")
