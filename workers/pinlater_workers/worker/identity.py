"""The identity of a worker in the list of workers: its name, where it runs, and what it is made of."""

from __future__ import annotations

import os
import platform
import secrets
import socket
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path

from pinlater.client.async_client import AsyncClient
from pinlater_workers.app.app import App
from pinlater_workers.app.loader import FILE
from pinlater_workers.app.settings import MAX_NAME_CHARS, WorkerSettings
from pinlater_workers.heartbeat.messages import RunningEntry, UnknownEntry, WorkerState
from pinlater_workers.heartbeat.reports import MAX_JOB_TYPES, MAX_QUEUES, MAX_RUNNING
from pinlater_workers.worker.jobs import RunningJobs
from pinlater_workers.worker.other_versions import OtherVersions


def default_name(app_spec: str) -> str:
    """The module of an app, or the name of its file without the ending.

    >>> default_name("shop.jobs:app"), default_name("file:/etc/pinlater/mailing.toml")
    ('shop.jobs', 'mailing')
    """
    if app_spec.startswith(FILE):
        return Path(app_spec.removeprefix(FILE)).stem[:MAX_NAME_CHARS]
    return app_spec.partition(":")[0][:MAX_NAME_CHARS]


class WorkerIdentity:
    """One run of a worker."""

    def __init__(self, settings: WorkerSettings, app_spec: str, app: App) -> None:
        self._id = secrets.token_hex(8)
        self._name = settings.name or default_name(app_spec) or "worker"
        self._host = socket.gethostname()
        self._began_s = time.monotonic()
        self._queues = dict(islice(settings.queues.items(), MAX_QUEUES))
        self._slots = settings.concurrency
        self._versions = {**_versions(), **({"app": app.version} if app.version else {})}
        self._app_version = app.version
        called = sorted(name for name, each in app.job_types.items() if not each.settings.raw)
        self._job_types = called[:MAX_JOB_TYPES]

    def others(self, client: AsyncClient) -> OtherVersions:
        """What the servers of this client know of workers of other versions."""
        return OtherVersions(client, self._id, self._app_version, self._began_s)

    def state(
        self, jobs: RunningJobs, unknown: list[UnknownEntry], *, is_stopping: bool, is_quiet: bool
    ) -> WorkerState:
        """What the worker runs now; the jobs that began first are named, those that hold stuck slots before them.

        `unknown`: what it met of late and could not run.
        """
        stuck = jobs.pool.stuck_jobs() if jobs.pool.stuck else ()
        begun = jobs.begun()
        named = islice((*stuck, *begun[:MAX_RUNNING]), MAX_RUNNING)
        running = [
            RunningEntry(each.job.descriptor, "" if each.type is None else each.type.name, each.began_s, each.until_s)
            for each in named
        ]
        return WorkerState(
            self._id,
            self._name,
            self._host,
            os.getpid(),
            self._began_s,
            self._queues,
            self._slots,
            len(begun),
            jobs.pool.stuck,
            running,
            self._versions,
            is_stopping,
            is_quiet=is_quiet,
            job_types=self._job_types,
            unknown_types=unknown,
        )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    with suppress(PackageNotFoundError):  # where the sources are there, and nothing is installed
        found["pinlater"] = version("pinlater")
    return found
