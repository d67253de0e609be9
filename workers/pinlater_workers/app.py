"""The app: which servers, which types of job, what happens around each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pinlater.client.async_client import AsyncClient
from pinlater.client.client import Client
from pinlater.clock import Clock, SystemClock
from pinlater_workers.connecting import Connections, Target
from pinlater_workers.enqueuing import Outbox
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.file import FileSettings, read_file
from pinlater_workers.importing import add_import_paths, import_object
from pinlater_workers.job import JobFunction, JobType
from pinlater_workers.job_settings import (
    DEFAULT_MAX_SNOOZES,
    DEFAULT_TIME_LIMIT_S,
    Encoding,
    JobSettings,
    PoolName,
    job_settings,
)
from pinlater_workers.retry_options import RetryOption
from pinlater_workers.tracing import write_trace
from pinlater_workers.worker_settings import WorkerSettings

if TYPE_CHECKING:
    from pinlater_workers.middleware import Middleware

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


_NAME = re.compile(r"[\w.:-]{1,200}")


class App:
    """`file`: settings in TOML, which count before what code says; else `servers`, a `cluster`, or the environment.

    ConfigurationError: a file, a server or a type of job that cannot be. `outbox` is where jobs go: the servers.
    """

    def __init__(
        self,
        file: str | Path | None = None,
        *,
        servers: Sequence[str] = (),
        cluster: str | None = None,
        clusters_file: str | Path | None = None,
        source: str | None = None,
        middleware: Sequence[Middleware] = (),
        clock: Clock | None = None,
    ) -> None:
        if isinstance(servers, str):
            servers = [servers]
        self.middleware: Sequence[Middleware] = tuple(middleware)
        self.clock: Clock = clock or SystemClock()
        self._types: dict[str, JobType] = {}
        self._connections = Connections(Target(servers, cluster, clusters_file, source))
        self.outbox: Outbox = self._connections
        self._file = FileSettings()
        self._functions_loaded = True
        if file is not None:
            self.follow(read_file(file))

    # -- types of job ----------------------------------------------------------------------------------------------

    def job(
        self,
        *,
        queue: str,
        name: str | None = None,
        attempts: int | None = None,
        retry: RetryOption | None = None,
        retry_on: Mapping[type[BaseException], RetryOption] | None = None,
        time_limit: float | str | timedelta = DEFAULT_TIME_LIMIT_S,
        priority: int = 1,
        pool: PoolName | None = None,
        encoding: Encoding = "json",
        max_snoozes: int = DEFAULT_MAX_SNOOZES,
    ) -> Callable[[Callable[P, ResultT]], JobFunction[P, ResultT]]:
        """Make a function a type of job.

        `name` defaults to the function's own. `attempts` defaults to the policy's retries and one more. `retry`: a
        policy, a text, a list of seconds, or a function of (attempt, error); `retry_on`: others for types of exception.
        `time_limit`: of one attempt, seconds or "10m". `priority`: 1 is the highest. `pool`: where it runs, whatever
        the worker's own choice. ConfigurationError: what cannot be.
        """
        options = {"queue": queue, "attempts": attempts, "retry": retry, "retry_on": retry_on, "time_limit": time_limit}
        options |= {"priority": priority, "pool": pool, "encoding": encoding, "max_snoozes": max_snoozes}
        return self._declaration(name, options)

    def raw_job(
        self,
        *,
        queue: str,
        name: str | None = None,
        attempts: int | None = None,
        retry: RetryOption | None = None,
        retry_on: Mapping[type[BaseException], RetryOption] | None = None,
        time_limit: float | str | timedelta = DEFAULT_TIME_LIMIT_S,
        priority: int = 1,
        pool: PoolName | None = None,
    ) -> Callable[[Callable[[bytes], ResultT]], JobFunction[[bytes], ResultT]]:
        """Make a function of the whole body the one for all jobs of a queue that have no envelope of ours."""
        options = {"queue": queue, "attempts": attempts, "retry": retry, "retry_on": retry_on, "time_limit": time_limit}
        options |= {"priority": priority, "pool": pool, "raw": True}
        return self._declaration(name, options)

    @property
    def job_types(self) -> Mapping[str, JobType]:
        """All of them by name, raw ones too, those of a file included."""
        self._load_functions()
        return MappingProxyType(self._types)

    def find(self, name: str) -> JobType | None:
        """The type that an envelope names."""
        self._load_functions()
        found = self._types.get(name)
        return None if found is None or found.settings.raw else found

    def raw(self, queue: str) -> JobType | None:
        """The type of the jobs of a queue that have no envelope."""
        self._load_functions()
        return next((each for each in self._types.values() if each.settings.raw and each.settings.queue == queue), None)

    def check(self) -> None:
        """ConfigurationError: the file names a job that no code declares and that has no function there."""
        self._load_functions()
        for name in self._file.jobs.keys() - self._types.keys():
            raise ConfigurationError(
                f"{self._file.where(f'jobs.{name}')}: no job of that name is declared; known: "
                f'{", ".join(sorted(self._types)) or "none"}; for a new one say function = "MODULE:NAME"'
            )

    def _declaration(self, name: str | None, options: Mapping[str, object]) -> Callable[..., JobFunction[Any, Any]]:
        said = {key: value for key, value in options.items() if value is not None}

        def declare(function: Callable[..., Any]) -> JobFunction[Any, Any]:
            job_name = getattr(function, "__name__", "") if name is None else name
            settings = job_settings(said, f"@app.job of {job_name!r}")
            job_type: JobFunction[Any, Any] = JobFunction(self, function, job_name, self._tuned(job_name, settings))
            self._add(job_type)
            return job_type

        return declare

    def _add(self, job_type: JobType) -> None:
        name, queue = job_type.name, job_type.settings.queue
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"a job named {name!r}; allowed: letters, digits and _.:- only, 1 to 200; say name="
            )
        if name in self._types:
            raise ConfigurationError(f"two jobs are named {name!r}; give one of them another name=")
        others = [each for each in self._types.values() if each.settings.raw and each.settings.queue == queue]
        if job_type.settings.raw and others:
            raise ConfigurationError(f"two raw jobs for queue {queue!r}: {others[0].name!r} and {name!r}; allowed: one")
        self._types[name] = job_type

    # -- what a file says ------------------------------------------------------------------------------------------

    def follow(self, file: FileSettings) -> None:
        """What the file says counts before what code says, of this app and of types declared before and later."""
        self._file = file
        self._functions_loaded = False
        if file.servers or file.cluster:
            self.use(servers=file.servers, cluster=file.cluster, clusters_file=file.clusters_file, source=file.source)
        for name, job_type in self._types.items():
            job_type.settings = self._tuned(name, job_type.settings)

    def _tuned(self, name: str, settings: JobSettings) -> JobSettings:
        """What code says of a job, with what the file says on top."""
        table = self._file.jobs.get(name)
        return settings if table is None else job_settings(table, self._file.where(f"jobs.{name}"), settings)

    def _load_functions(self) -> None:
        """Make the types of job whose functions the file names. Only once; not again after a failure."""
        if self._functions_loaded:
            return
        self._functions_loaded = True
        add_import_paths(self._file.import_paths)
        for name, table in self._file.jobs.items():
            if "function" in table and name not in self._types:
                self._add(self._from_file(name, table))

    def _from_file(self, name: str, table: Mapping[str, object]) -> JobType:
        where = self._file.where(f"jobs.{name}")
        found = import_object(table["function"], f"{where}: function")
        base = None
        if isinstance(found, JobType):
            base, found = found.settings, found.function
        if not callable(found):
            raise ConfigurationError(
                f"{where}: function is {table['function']!r}, a {type(found).__name__}; allowed: a function"
            )
        return JobType(self, found, name, job_settings(table, where, base))

    @property
    def worker_settings(self) -> WorkerSettings:
        """What the file says of the worker."""
        return self._file.worker_settings()

    # -- servers ---------------------------------------------------------------------------------------------------

    def use(
        self,
        *,
        servers: Sequence[str] = (),
        cluster: str | None = None,
        clusters_file: str | Path | None = None,
        source: str | None = None,
    ) -> None:
        """Other servers from here on. Before the first call: clients that were made are left as they are."""
        own = self.outbox is self._connections
        self._connections = Connections(Target(servers, cluster, clusters_file, source))
        if own:
            self.outbox = self._connections

    @property
    def servers(self) -> list[str]:
        """As HOST:PORT. ConfigurationError: no such address or cluster."""
        return self._connections.addresses

    @property
    def client(self) -> Client:
        """For any number of threads, and for the children of a fork."""
        return self._connections.client

    def async_client(self) -> AsyncClient:
        """The client of the running event loop; `close_async` closes it."""
        return self._connections.async_client()

    def connect(self, **options: Any) -> AsyncClient:
        """A client of its own to the same servers, which the caller closes; `options` as for AsyncClient."""
        return self._connections.connect(**options)

    def headers(self, job: str) -> dict[str, str]:
        """What travels with a job that is enqueued now: what middleware adds, and the current trace."""
        headers: dict[str, str] = {}
        for each in self.middleware:
            each.enqueue(headers, job)
        write_trace(headers)
        return headers

    def close(self) -> None:
        """Close the client for threads. A later call makes a new one."""
        self._connections.close()

    async def close_async(self) -> None:
        """Close the client of the running event loop."""
        await self._connections.close_async()
