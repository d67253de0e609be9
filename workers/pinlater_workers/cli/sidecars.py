"""The sidecars of a worker: signals, the pages it serves, the packets to statsd."""

from __future__ import annotations

import asyncio
import importlib
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import ModuleType
from typing import Any

from pinlater.errors import install_command
from pinlater.forks import in_forks, leave_connections
from pinlater.log_guard import GuardedLogger
from pinlater.metric_family import Series
from pinlater.standard_streams import StartTerminal
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.cli.new_code import fault_of_new_code
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.observability.metrics import WorkerMetrics
from pinlater_workers.worker.worker import ExitReason, Worker

_log = GuardedLogger("pinlater_workers.cli")
_EXTRAS = {"aiohttp": "workers", "prometheus_client": "workers", "statsd": "workers", "watchfiles": "reload"}
"""The extra that brings each package."""

_HANGUPS = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []
"""Windows has none."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, *_HANGUPS)

CodeChanged = Callable[[], Coroutine[Any, Any, str]]
"""Waits for a change of the code, and names the file."""


class Signals:
    """SIGTERM and SIGINT end the worker, the second hurries it; SIGHUP ends it and has it begin anew, where the code of
    now can be loaded, unless it says that the terminal was closed: then it ends it as SIGTERM does, and under nohup
    nothing happens.
    """

    def __init__(self, worker: Worker, grace_s: float) -> None:
        self._worker = worker
        self._grace_s = grace_s
        self._stops = 0
        self.is_to_replace = False
        self._trial: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._terminal = StartTerminal(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            _handle(loop, number, partial(self._stop, number))
        for number in _HANGUPS:
            _handle(loop, number, self._hung_up)

    def _stop(self, number: signal.Signals) -> None:
        if self.is_to_replace:
            self.is_to_replace = False
            _log.info("%s: it ends and does not begin anew", number.name)
            self._stops = 1
            return
        self._stops += 1
        if self._stops == 1:
            self._finish(number.name)
        else:
            _log.warning("%s again: it ends now; what runs is requeued", number.name)
            self._worker.stop()

    def _hung_up(self) -> None:
        if not self._terminal.was_closed():
            if self._trial is None or self._trial.done():
                self._trial = asyncio.ensure_future(self._replace_by_sound_code())
        elif self._terminal.is_outlived:
            _log.info("SIGHUP: the terminal was closed; it goes on, as it runs under nohup")
        else:
            self._stop(_HANGUPS[0])

    async def _replace_by_sound_code(self) -> None:
        if fault := await fault_of_new_code():
            _log.error("SIGHUP: the new code cannot begin, so the old goes on; mend it, and send it again: %s", fault)
        else:
            self.replace("SIGHUP, to begin anew")

    async def close(self) -> None:
        if self._trial is not None:
            await _end(self._trial)

    def replace(self, why: str) -> None:
        if not self._stops and not self.is_to_replace:
            self.is_to_replace = True
            self._finish(why)

    def _finish(self, why: str) -> None:
        _log.info("%s: no new jobs%s", why, what_runs(self._worker.view().running, self._grace_s))
        self._worker.stop()


def _handle(loop: asyncio.AbstractEventLoop, number: signal.Signals, handler: Callable[[], None]) -> None:
    try:
        loop.add_signal_handler(number, handler)
    except NotImplementedError:  # the loops of Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(handler))


def what_runs(running: int, grace_s: float) -> str:
    """What becomes of it, for the log."""
    if not running:
        return ""
    if not grace_s:
        return f"; {running} run and are requeued"
    return f"; {running} run and have {grace_s:g} s to end, a second SIGTERM hurries"


def optional(module: str, what: str) -> ModuleType:
    """A module of ours that needs a package of the extra. ConfigurationError that names the extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        extra = _EXTRAS.get(missing.name or "")
        if extra is None:
            raise
        raise ConfigurationError(f"{what} needs the Python package {missing.name}: {install_command(extra)}") from None


async def serve(
    worker: Worker,
    settings: WorkerSettings,
    metrics: WorkerMetrics,
    begins: str,
    code_changed: CodeChanged | None = None,
) -> ExitReason:
    """Until a signal, the worker itself, or a change of code ends it. `begins` is logged when signals are heeded."""

    def read() -> Series:
        return metrics.read(worker.view())

    signals = Signals(worker, settings.grace_s)
    in_forks(SIGNALS, leave_connections, "pinlater_workers.pools.threads")
    _log.info("%s", begins)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(signals.close)
        if settings.http:
            web = optional("pinlater_workers.observability.web", "--http")
            site = web.worker_site(worker.view, read, settings.poll_s)
            stack.push_async_callback(site.close)
            await site.serve(settings.http, web.MAX_CONNECTIONS)
        if settings.statsd:
            statsd = optional("pinlater_workers.observability.statsd", "--statsd")
            export = statsd.worker_statsd(settings.statsd, settings.statsd_prefix)
            stack.push_async_callback(_end, asyncio.ensure_future(statsd.send_often(export, read)))
        if code_changed is not None:
            stack.push_async_callback(_end, asyncio.ensure_future(_replace_when_changed(signals, code_changed)))
        ending = await worker.run()
    return ExitReason.REPLACE if signals.is_to_replace else ending


async def _replace_when_changed(signals: Signals, code_changed: CodeChanged) -> None:
    signals.replace(f"{await code_changed()} has changed")


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
