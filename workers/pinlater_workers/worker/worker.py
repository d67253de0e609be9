"""A worker: takes as many jobs as it has free slots, runs them in its pool, and acks them."""

from __future__ import annotations

import time
from enum import Enum

from pinlater_workers.app import App
from pinlater_workers.metrics import Metrics
from pinlater_workers.view import QueueView, WorkerView
from pinlater_workers.worker.engine import Engine
from pinlater_workers.worker.stopping import Stop
from pinlater_workers.worker_settings import WorkerSettings


class Ending(Enum):
    """Why a worker's run is over."""

    DONE = "it was stopped"
    REPLACE = "half of its slots are stuck: it is to be started anew"


class Worker:
    """One run. `app_spec` names the app for the processes of its pool."""

    def __init__(self, app: App, settings: WorkerSettings, app_spec: str, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._app_spec = app_spec
        self._metrics = metrics
        self._stop = Stop()
        self._engine: Engine | None = None
        self._made_s = time.monotonic()

    async def run(self) -> Ending:
        """Until it is stopped, or half of its slots are stuck. ConfigurationError: its pool cannot be opened."""
        self._engine = Engine(self._app, self._app_spec, self._settings, self._metrics, self._stop)
        await self._engine.run()
        return Ending.REPLACE if self._engine.is_stuck else Ending.DONE

    def stop(self) -> None:
        """No new jobs, and running ones have the grace time to end. Asked again: no time at all."""
        self._stop.ask()

    def view(self) -> WorkerView:
        if self._engine is not None:
            return self._engine.view()
        queues = {name: QueueView(weight, "starting") for name, weight in self._settings.queues.items()}
        return WorkerView(time.monotonic() - self._made_s, self._settings.concurrency, queues=queues)
