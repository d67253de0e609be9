"""The app: its servers and clients, its types of job, its middleware."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack, overload

import pinlater
from pinlater.client.addresses import target_servers
from pinlater.client.client_tls import Tls, target_tls
from pinlater.client.token import Token, target_token
from pinlater.clock import Clock, SystemClock
from pinlater.errors import Forbidden, QueueNotFound
from pinlater.model import Job
from pinlater_workers.app.catalogue import Catalogue, Include
from pinlater_workers.app.job_options import Duration, JobOptions, RawJobOptions, says_queue
from pinlater_workers.app.result_bounds import ResultBounds
from pinlater_workers.app.settings import FileSettings, WorkerSettings, read_file
from pinlater_workers.app.start_hooks import Hook, StartHooks
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs.batch import ArgumentT, Batch
from pinlater_workers.jobs.dependencies import Providers, shown_type, unprovided
from pinlater_workers.jobs.enqueue_calls import JobSink
from pinlater_workers.jobs.job_type import JobFunction, JobType
from pinlater_workers.jobs.settings import (
    job_settings,
)
from pinlater_workers.tracing import write_trace

if TYPE_CHECKING:
    from pinlater.client.async_client import AsyncClient
    from pinlater.client.client import Client
    from pinlater_workers.middleware import Middleware


P = ParamSpec("P")
T = TypeVar("T")
_making = threading.Lock()
"""Held for an assignment, so that many threads at once have one client."""


class App:
    """An app: types of job, and the servers that they go to.

    `file`: settings in TOML, which take precedence over code; else `servers`, a `cluster`, or the environment.
    `include`: modules that declare jobs, as "shop.jobs", "shop.*" for all of a package, or a function that names them;
    they are imported when the jobs are first needed, in a worker at its start.

    `token` proves the caller's identity: a text, or a Path of the file that has it; without it the cluster's token
    decides, then the environment. `version` is that of the program, for the list of workers. `create_queues`: queues
    that are missing are created when jobs are to be stored there, where the caller may do that.
    ConfigurationError: a file, a server or a type of job that cannot be. `sink` is where jobs go: the servers.
    """

    def __init__(
        self,
        file: str | Path | None = None,
        *,
        servers: Sequence[str] = (),
        cluster: str | None = None,
        clusters_file: str | Path | None = None,
        source: str | None = None,
        tls: Tls | bool | None = None,
        token: str | Path | Token | None = None,
        include: Include = (),
        middleware: Sequence[Middleware] = (),
        clock: Clock | None = None,
        version: str = "",
        create_queues: bool = False,
    ) -> None:
        if isinstance(servers, str):
            servers = [servers]
        self.middleware: Sequence[Middleware] = tuple(middleware)
        self.clock: Clock = clock or SystemClock()
        self._version = version
        self.providers = Providers()
        self.hooks = StartHooks(self.providers)
        self._catalogue = Catalogue(self, [include] if isinstance(include, str) else include)
        self._connections = ServerClients(
            ServerTarget(servers, cluster, clusters_file, source, tls, token, create_queues)
        )
        self.sink: JobSink = self._connections
        self.clients: Clients = self._connections
        """The source of clients for the app's jobs: its servers, or a test in memory."""
        self._file = FileSettings()
        if file is not None:
            self.follow(read_file(file))

    # -- types of job ----------------------------------------------------------------------------------------------

    @overload
    def job(self, *, queue: str, **options: Unpack[JobOptions]) -> Callable[[Callable[P, T]], JobFunction[P, T]]: ...

    @overload
    def job(
        self, *, queue: str, batch: int, wait: Duration = ..., **options: Unpack[JobOptions]
    ) -> Callable[[Callable[[Batch[ArgumentT]], T]], JobFunction[[ArgumentT], T]]: ...

    @says_queue(JobOptions)
    def job(self, **options: Any) -> Callable[[Callable[..., Any]], JobFunction[..., Any]]:
        """Make a function a type of job.

        `name` defaults to the function's own. `attempts` defaults to the policy's retries and one more. `retry`: a
        policy, a text, a list of seconds, or a function of (attempt, error); `retry_on`: others for types of exception.
        `time_limit`: of one attempt, seconds or "10m". `priority`: 1 is the highest. `pool`: where it runs, whatever
        the worker's own choice. `secret`: parameters whose values no display shows. `batch`: the function takes a Batch
        of at most that many jobs, which `wait` for each other (0.2 s by default).

        `unique`: a template over the arguments, as in "{user_id}", or a function of them: while a job of this name is
        pending or runs, and for `unique_for` after its end ("10m", or "kept"), no second one comes into being;
        `on_duplicate`: "keep" the one that stands, "replace" what it is to do, or "reject" the new one. With "replace",
        `replace_running`: "keep" the one that runs, "enqueue" the new one behind it, or also ask that one to stop,
        "cancel"; `replace_within`: how long after its first enqueue a job may be postponed, as "10s". `serialize`:
        likewise; jobs of one such key, in whichever queues, run one at a time, in the order they were enqueued.
        `expires`: a job that has not begun this long after it is due fails. `claim_timeout`: how long a claim of a job
        holds, unless its dequeue asks for another time. `keep_result`: the returned value is kept for callers.
        `tags`: up to 10 texts on each job, by which people find and change such jobs, as in ("tenant:7",).
        `group`: likewise; the groups of a queue, as its tenants, have fair shares of its hand-outs.

        `cron`, as in "0 3 * * *", in `timezone` (UTC by default), or `every`, as in "10m": the cluster enqueues it
        again and again, without arguments, once the schedule is applied: `pinlater-worker --apply-schedules`.
        `misfire`: for the times at which no server ran "skip" them, "run_once" (the default) or "run_all" the last ten.
        `jitter`: each job waits up to this time after its firing. ConfigurationError: what cannot be.
        """
        return self._declaration(options)

    @overload
    def raw_job(
        self, *, queue: str, **options: Unpack[RawJobOptions]
    ) -> Callable[[Callable[[bytes], T]], JobFunction[[bytes], T]]: ...

    @overload
    def raw_job(
        self, *, queue: str, batch: int, wait: Duration = ..., **options: Unpack[RawJobOptions]
    ) -> Callable[[Callable[[Batch[bytes]], T]], JobFunction[[bytes], T]]: ...

    @says_queue(RawJobOptions)
    def raw_job(self, **options: Any) -> Callable[[Callable[..., Any]], JobFunction[[bytes], Any]]:
        """Make a function of the whole body the handler of all jobs of a queue that have no envelope."""
        return self._declaration({**options, "raw": True})

    def _declaration(self, options: Mapping[str, Any]) -> Callable[..., JobFunction[Any, Any]]:
        given = {key: value for key, value in options.items() if value is not None}
        name = given.pop("name", None)

        def declare(function: Callable[..., Any]) -> JobFunction[Any, Any]:
            job_name = getattr(function, "__name__", "") if name is None else name
            settings = self._catalogue.tuned(job_name, job_settings(given, f"@app.job of {job_name!r}"))
            job_type: JobFunction[Any, Any] = JobFunction(self, function, job_name, settings)
            self._catalogue.add(job_type)
            return job_type

        return declare

    @property
    def job_types(self) -> Mapping[str, JobType]:
        """All types of job by name, with raw ones and those of a file."""
        return self._catalogue.all()

    def find(self, name: str) -> JobType | None:
        """Return the type that an envelope names."""
        return self._catalogue.find(name)

    def raw(self, queue: str) -> JobType | None:
        """Return the type of the jobs of a queue that have no envelope."""
        return self._catalogue.raw(queue)

    # -- what begins and ends with a worker ----------------------------------------------------------------------

    def on_start(self, hook: Hook) -> Hook:
        """Make a function run once when a worker begins, before it takes jobs; a coroutine on the worker's loop. An
        error ends the worker.
        """
        self.hooks.start.append(hook)
        return hook

    def on_stop(self, hook: Hook) -> Hook:
        """Make a function run once when a worker has ended its last job. Those declared last run first."""
        self.hooks.stop.append(hook)
        return hook

    def on_process_start(self, hook: Hook) -> Hook:
        """Make a function run in each process that runs jobs, before the first one: the worker's own, and each process
        of a pool. An error ends the worker.
        """
        self.hooks.process_start.append(hook)
        return hook

    def provide(self, function: Hook) -> Hook:
        """Make a function provide jobs with what it is annotated to return, or to yield: a client, a pool, a model.

        It takes no arguments. Jobs with a parameter of that annotation get it; it is made once in each process, at its
        start, and behind the `yield` it ends with the process. It has to stand before these jobs, or their parameter
        needs the default `provided`. ConfigurationError: two make the same, or a job before it takes that as argument.
        """
        provider = self.providers.add(function)
        for job_type in self._catalogue.declared:
            if provider.makes in job_type.argument_hints:
                raise ConfigurationError(
                    f"job {job_type.name!r} takes {shown_type(provider.makes)} as an argument, and {provider.place} "
                    "provides it: put the provider before the job, or give the parameter the default `provided`"
                )
        return function

    # -- what a file says ------------------------------------------------------------------------------------------

    def follow(self, file: FileSettings) -> None:
        """Let settings of a file take precedence over code, for this app and for types declared before and later."""
        self._file = file
        self._catalogue.follow(file)
        self.use(
            servers=file.servers,
            cluster=file.cluster,
            clusters_file=file.clusters_file,
            source=file.source,
            tls=file.tls,
            token=file.token_file,
        )

    def check(self) -> None:
        """Raise ConfigurationError unless each job of the file is declared in code or has a function there, and
        something provides what each job needs.
        """
        self._catalogue.check()
        unprovided([(name, each.dependencies) for name, each in self.job_types.items()], self.providers)

    @property
    def worker_settings(self) -> WorkerSettings:
        """The file's settings of the worker."""
        return self._file.worker_settings()

    @property
    def version(self) -> str:
        """The version of the program, if the file or the code sets one."""
        return self._file.version or self._version

    # -- servers ---------------------------------------------------------------------------------------------------

    def use(
        self,
        *,
        servers: Sequence[str] = (),
        cluster: str | None = None,
        clusters_file: str | Path | None = None,
        source: str | None = None,
        tls: Tls | bool | None = None,
        token: str | Path | Token | None = None,
    ) -> None:
        """Use other servers, or another name or token for this client, from now on; what is not given stays.

        The client for threads is closed; those for event loops that were made are left as they are.
        """
        old = self._connections.target
        if not servers and cluster is None:
            servers, cluster, clusters_file = old.servers, old.cluster, clusters_file or old.clusters_file
        own = self.sink is self._connections
        self._connections.close()
        target = ServerTarget(
            servers,
            cluster,
            clusters_file,
            source or old.source,
            old.tls if tls is None else tls,
            old.token if token is None else token,
            old.create_queues,
        )
        self._connections = ServerClients(target)
        if own:
            self.sink = self.clients = self._connections

    @property
    def tls(self) -> Tls | None:
        """The TLS of calls to the servers; None: no TLS. ConfigurationError: no such cluster, or invalid settings."""
        return self._connections.tls

    @property
    def servers(self) -> list[str]:
        """The servers, as HOST:PORT. ConfigurationError: no such address or cluster."""
        return self._connections.addresses

    @property
    def token(self) -> Token | None:
        """The token of its clients. ConfigurationError: it is missing where it is expected, or others can read it."""
        return self._connections.token

    @property
    def names_its_source(self) -> bool:
        """Whether all its workers and producers have one source; else each client has its own."""
        return self._connections.target.source is not None

    @property
    def client(self) -> Client:
        """The client for any number of threads, and for the children of a fork."""
        return self.clients.client

    def async_client(self) -> AsyncClient:
        """The client of the running event loop; `close_async` closes it."""
        return self.clients.async_client()

    def connect(self, **options: Any) -> AsyncClient:
        """Make a client of its own to the same servers, which the caller closes; `options` as for AsyncClient."""
        return self.clients.connect(**options)

    def exceeded_result_bound(self, queue: str, size: int, *, may_ask: bool = True) -> int | None:
        """Return the queue's bound of results, if one of `size` exceeds it; None: it fits, or the bound is not known.

        `may_ask`: a server may be called for it, which blocks: not on an event loop.
        """
        return self.clients.exceeded_result_bound(queue, size, may_ask=may_ask)

    def headers(self, job: str, given: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        """Return the headers of a job that is enqueued now: those given, those of middleware, and the current trace.

        TypeError: a header that is no text, which no worker could read.
        """
        headers = dict(given)
        for each in self.middleware:
            each.enqueue(headers, job)
        for name, value in headers.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"header {name!r} of job {job!r} is {value!r}; allowed: texts")
        write_trace(headers)
        return headers

    def close(self) -> None:
        """Close the client for threads. A later call makes a new one."""
        self._connections.close()

    async def close_async(self) -> None:
        """Close the client of the running event loop."""
        await self._connections.close_async()


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """Servers, or a cluster; with neither the environment decides, when the first client is made."""

    servers: Sequence[str] = ()
    cluster: str | None = None
    clusters_file: str | Path | None = None
    source: str | None = None
    tls: Tls | bool | None = None
    token: str | Path | Token | None = field(default=None, repr=False)
    create_queues: bool = False


class Clients(Protocol):
    """The clients of an app."""

    @property
    def client(self) -> Client:
        """For any number of threads."""

    def async_client(self) -> AsyncClient:
        """That of the running event loop."""

    def connect(self, **options: Any) -> AsyncClient:
        """A new client, which the caller closes; `options` as for AsyncClient."""

    def exceeded_result_bound(self, queue: str, size: int, *, may_ask: bool) -> int | None:
        """As that of the app."""

    def create_missing(self, queues: Iterable[str], error: QueueNotFound) -> None:
        """Create those that are missing where that is wanted, else raise the error."""

    async def create_missing_async(self, queues: Iterable[str], error: QueueNotFound) -> None:
        """`create_missing` for an event loop."""


class ServerClients:
    """The clients to one target. A JobSink: jobs go to the servers.

    Clients are made, and imported, when they are needed first: most processes of a pool send nothing.
    """

    def __init__(self, target: ServerTarget) -> None:
        self.target = target
        self._client: Client | None = None
        self._async_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClient]
        self._async_clients = weakref.WeakKeyDictionary()
        self._result_bounds = ResultBounds(lambda: self.client)

    @property
    def addresses(self) -> list[str]:
        """The servers, as HOST:PORT. ConfigurationError: no such address or cluster."""
        target = self.target
        try:
            return [str(each) for each in target_servers(target.servers, target.cluster, target.clusters_file)]
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    @property
    def tls(self) -> Tls | None:
        """How to call them; None: in plain. ConfigurationError as above."""
        target = self.target
        try:
            return target_tls(target.tls, target.servers, target.cluster, target.clusters_file)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    @property
    def token(self) -> Token | None:
        """As of now, with the file that it came from. ConfigurationError as of `App.token`."""
        target = self.target
        try:
            token = target_token(target.token, target.servers, target.cluster, target.clusters_file)
            return None if token is None else replace(token, text=token.read())
        except ValueError as error:
            raise ConfigurationError(str(error)) from None

    @property
    def client(self) -> Client:
        """The client for any number of threads, and for the children of a fork."""
        if self._client is None:
            made = pinlater.Client(
                servers=self.addresses, source=self.target.source, tls=self.tls or False, token=self.token or ""
            )
            with _making:
                self._client = self._client or made
        return self._client

    def async_client(self) -> AsyncClient:
        """That of the running event loop, with which it ends."""
        loop = asyncio.get_running_loop()
        found = self._async_clients.get(loop)
        if found is None:
            client = self.connect()
            found = self._async_clients[loop] = _LoopClient(client, self._closed_with(loop, client))
            with suppress(StopIteration):
                found.end.__anext__().__await__().__next__()
        return found.client

    def connect(self, **options: Any) -> AsyncClient:
        """A new client, which the caller closes; `options` as for AsyncClient."""
        given = {"source": self.target.source, "tls": self.tls or False, "token": self.token or "", **options}
        return pinlater.AsyncClient(servers=self.addresses, **given)

    def exceeded_result_bound(self, queue: str, size: int, *, may_ask: bool) -> int | None:
        return self._result_bounds.exceeded(queue, size, may_ask=may_ask)

    def send(self, queue: str, jobs: Sequence[Job], *, timeout_s: float | None = None) -> list[str]:
        try:
            return self.client.enqueue(queue, jobs, timeout=timeout_s)
        except QueueNotFound as error:
            self.create_missing([queue], error)
            return self.client.enqueue(queue, jobs, timeout=timeout_s)

    async def send_async(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        client = self.async_client()
        try:
            return await client.enqueue(queue, jobs)
        except QueueNotFound as error:
            await self.create_missing_async([queue], error)
            return await client.enqueue(queue, jobs)

    def create_missing(self, queues: Iterable[str], error: QueueNotFound) -> None:
        """Those of these that are missing, where this client is to create queues; else the error is raised. Forbidden:
        it may not. Others may do the same at once.
        """
        if not self.target.create_queues:
            raise error
        for queue in queues:
            with _naming_missing_rights(queue):
                self.client.create_queue(queue)

    async def create_missing_async(self, queues: Iterable[str], error: QueueNotFound) -> None:
        """`create_missing` for an event loop."""
        if not self.target.create_queues:
            raise error
        for queue in queues:
            with _naming_missing_rights(queue):
                await self.async_client().create_queue(queue)

    def close(self) -> None:
        """Close the client for threads. A later call makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    async def close_async(self) -> None:
        """Close that of the running event loop."""
        found = self._async_clients.get(asyncio.get_running_loop())
        if found is not None:
            await found.end.aclose()

    async def _closed_with(self, loop: asyncio.AbstractEventLoop, client: AsyncClient) -> AsyncGenerator[None, None]:
        """To be begun. A loop that ends in order, as that of `asyncio.run` does, ends the generators that were begun on
        it: the one moment at which it tells anybody.
        """
        try:
            yield
        finally:
            self._async_clients.pop(loop, None)
            await client.close()


@contextmanager
def _naming_missing_rights(queue: str) -> Iterator[None]:
    try:
        yield
    except Forbidden as error:
        raise Forbidden(
            f"queue {queue!r} does not exist, and this client may not create it, as create_queues=True wants: "
            f"{error.message}"
        ) from error


class _LoopClient(NamedTuple):
    """The client of an event loop, and the generator that closes it."""

    client: AsyncClient
    end: AsyncGenerator[None, None]
