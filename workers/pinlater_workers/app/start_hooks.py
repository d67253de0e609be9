"""The hooks of an app, and what it provides: what it does when a worker or one of its processes begins and ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pinlater.log_guard import GuardedLogger
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.execution.failure_text import describe
from pinlater_workers.jobs.dependencies import Providers
from pinlater_workers.jobs.job_type import JobType

Hook = TypeVar("Hook", bound=Callable[[], Any])
_log = GuardedLogger("pinlater_workers.app")


class StartHooks:
    """`process_start` runs in each process that runs jobs, `start` and `stop` once in each worker."""

    def __init__(self, providers: Providers) -> None:
        self.start: list[Callable[[], Any]] = []
        self.stop: list[Callable[[], Any]] = []
        self.process_start: list[Callable[[], Any]] = []
        self._providers = providers

    def begins_process(self, types: Iterable[JobType]) -> bool:
        """Whether a process with these types of job has anything to do before the first one."""
        return bool(self.process_start) or any(job_type.dependencies.types for job_type in types)

    async def begin_process(self, types: Iterable[JobType]) -> None:
        """Run the hooks of a process that runs these types of job, and make what they are provided with.
        ConfigurationError: something failed.
        """
        for hook in self.process_start:
            await _run(hook, "on_process_start")
        hints = [hint for job_type in types for hint in job_type.dependencies.types.values()]
        for hint in dict.fromkeys(hints):
            try:
                await self._providers.value_async(hint)
            except ConfigurationError:
                raise
            except Exception as error:
                raise _failed("provider", self._providers.place_of(hint), error) from error

    async def begin_worker(self) -> None:
        """ConfigurationError: a hook failed."""
        for hook in self.start:
            await _run(hook, "on_start")

    async def end_worker(self) -> None:
        """The hooks of the stop, the last first. What one raises is logged, and the others run."""
        for hook in reversed(self.stop):
            try:
                await _run(hook, "on_stop")
            except ConfigurationError as error:
                _log.error("%s", error, exc_info=error.__cause__)

    async def end_process(self) -> None:
        """End what was provided in this process. What fails is logged."""
        for provider, error in await self._providers.close_async():
            _log.error("The end of the provider %s failed: %s", provider.place, describe(error), exc_info=error)


async def _run(hook: Callable[[], Any], kind: str) -> None:
    try:
        result = hook()
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        place = f"{getattr(hook, '__module__', '?')}:{getattr(hook, '__qualname__', hook)}"
        raise _failed(kind, place, error) from error


def _failed(kind: str, place: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"{kind} {place} failed, so that no job can run: {describe(error)}")
