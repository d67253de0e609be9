"""A flow as a program declares it: its stages, and how the items of one come from those of another.

payroll = Flow("payroll")
calculate = payroll.stage(calculate_payroll, max_failures=3)
pay = calculate.then(send_check, payload="{user: payload.user, amount: result.amount}", final=True)

run = payroll.start([{"user": 1}, {"user": 2}], dedupe_key="2026-11", on_complete=report_done)
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, cast, overload

from pinlater.errors import QueueNotFound
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CompletionCallback,
    FlowCreated,
    NewFlow,
    NewItem,
    OnFailure,
    Stage,
)
from pinlater.model.group_template import TEMPLATE, template_parts
from pinlater.schedule import Delay, delay_seconds
from pinlater_workers.app.app import App
from pinlater_workers.errors import ArgumentsInvalid, ConfigurationError
from pinlater_workers.flows.flow_run import AsyncFlowRun, FlowRun
from pinlater_workers.flows.item_calls import in_calls
from pinlater_workers.jobs.job_type import JobFunction, JobType
from pinlater_workers.jobs.keys import KeyOption, KeyTemplate, checked_size

ResultT = TypeVar("ResultT")
AwaitedT = TypeVar("AwaitedT")

MOST_FAILURES = 99
"""What a server allows a stage."""

WEEK_S = 7 * 24 * 3_600.0
_ON_FAILURE = {each.name.lower(): each for each in OnFailure}


class StageOptions(TypedDict, total=False):
    """The options of `stage(...)` and `then(...)`.

    `name`: the job's own unless said. `queue`, `priority`, `tags`: others than the job's. `max_failures`: so often an
    item may fail and is tried again, `backoff` later, twice as long each time up to `max_backoff`; unless said, what
    the job's `attempts` allow. `final`: its results are those of the flow. `keep_open`: it is sealed by hand, not when
    its parent is complete. `unique`, `serialize`: templates or functions that make the keys of items that a program
    adds, in place of the job's; False: none. `group`: a template by which the server makes the groups of all items from
    their payloads, children too, as in "{tenant}"; unless said, the job's, where that is such a template. False: none.
    """

    name: str
    queue: str
    priority: int
    tags: Sequence[str]
    max_failures: int
    backoff: Delay
    max_backoff: Delay
    final: bool
    keep_open: bool
    unique: KeyOption
    serialize: KeyOption
    group: str | Literal[False]


class StartOptions(TypedDict, total=False):
    """The options of `start(...)`.

    `dedupe_key`: while a flow of this name with the key is kept, it is that one. `metadata`: texts that the flow
    carries. `on_complete`: a job, which gets the FlowEnd as its argument `flow`, or a URL. `on_failure`: what becomes
    of the rest when an item has failed. `keep_for`: so long after its end. `seal`: no more items come.
    """

    dedupe_key: str
    metadata: Mapping[str, str]
    on_complete: JobType | str
    on_failure: Literal["go_on", "stop_stage", "stop_flow"]
    keep_for: Delay
    seal: bool


@dataclass(eq=False)
class FlowStage(Generic[ResultT]):
    """A stage of a flow; `ResultT` is what its job returns."""

    flow: Flow
    job: JobType
    declared: Stage
    unique: KeyTemplate | None = field(repr=False)
    serialize: KeyTemplate | None = field(repr=False)

    @property
    def name(self) -> str:
        return self.declared.name

    @overload
    def then(
        self: FlowStage[Any],
        job: JobFunction[..., Coroutine[Any, Any, AwaitedT]],
        *,
        payload: str | None = None,
        items: JobType | None = None,
        **options: Unpack[StageOptions],
    ) -> FlowStage[AwaitedT]: ...

    @overload
    def then(
        self,
        job: JobFunction[..., AwaitedT],
        *,
        payload: str | None = None,
        items: JobType | None = None,
        **options: Unpack[StageOptions],
    ) -> FlowStage[AwaitedT]: ...

    def then(
        self,
        job: JobFunction[..., Any],
        *,
        payload: str | None = None,
        items: JobType | None = None,
        **options: Unpack[StageOptions],
    ) -> FlowStage[Any]:
        """Declare the stage below this one, whose items are made as items of this one succeed.

        `payload`: a JMESPath expression over `payload` and `result` of that item, which gives the arguments of one
        item, or a list of such. `items`: a job that gets `payload` and `result`, and returns such a list. With neither
        each makes one, whose job gets `payload` and `result`. ConfigurationError: both; a stage of that name is there.
        """
        if payload is not None and items is not None:
            raise ConfigurationError(f"stage {_job(job).name}: either payload or items can be given, not both")
        applet = Applet()
        if payload is not None:
            if not isinstance(payload, str):
                raise ConfigurationError(f"payload is {payload!r:.200}; allowed: a JMESPath expression as a text")
            applet = Applet(AppletKind.MAP, payload)
        elif items is not None:
            _see_it_takes(items, ("payload", "result"), "as items= it gets payload and result, those of an item above")
            applet = Applet(AppletKind.JOB, job=items.name, queue=items.settings.queue)
        else:
            _see_it_takes(job, ("payload", "result"), "without payload= and items= it gets those of an item above")
        return self.flow._declare(job, self.name, applet, options)

    def items(self, payloads: Iterable[Any]) -> Iterable[NewItem]:
        """Return the items of this stage for these payloads. ArgumentsInvalid: the job does not take one of them."""
        if isinstance(payloads, (str, bytes, Mapping)) or not isinstance(payloads, Iterable):
            allowed = "a list of them, each the arguments as a dict or the only argument"
            raise ArgumentsInvalid(f"the items of stage {self.name} are {payloads!r:.200}; allowed: {allowed}")
        for payload in payloads:
            written = self.job.payload(payload)
            keys = self._key("unique", self.unique, payload), self._key("serialize", self.serialize, payload)
            yield NewItem(written, *keys)

    def _key(self, what: str, template: KeyTemplate | None, payload: Any) -> str:
        if template is None:
            return ""
        by_name = isinstance(payload, Mapping)
        key = template.key([] if by_name else [payload], payload if by_name else {})
        return "" if key is None else checked_size(self.job.name, what, key)


class Flow:
    """A tree of stages under a name, declared once and started as often as need be."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stages: dict[str, FlowStage[Any]] = {}
        """The stages by their names, parents first."""

    def __repr__(self) -> str:
        return f"<flow {self.name!r}: {', '.join(self.stages) or 'no stages'}>"

    @property
    def app(self) -> App:
        """The app of its jobs. ConfigurationError: it has no stage yet."""
        return cast(App, self._root().job.app)

    @overload
    def stage(
        self, job: JobFunction[..., Coroutine[Any, Any, AwaitedT]], **options: Unpack[StageOptions]
    ) -> FlowStage[AwaitedT]: ...

    @overload
    def stage(self, job: JobFunction[..., ResultT], **options: Unpack[StageOptions]) -> FlowStage[ResultT]: ...

    def stage(self, job: JobFunction[..., Any], **options: Unpack[StageOptions]) -> FlowStage[Any]:
        """Declare a stage without a parent: programs add its items. ConfigurationError: a stage has that name."""
        return self._declare(job, "", Applet(), options)

    def _declare(self, job: JobType, parent: str, applet: Applet, options: StageOptions) -> FlowStage[Any]:
        _refuse_unknown(f"stage {_job(job).name}", options, StageOptions)
        name, settings = options.get("name", job.name), job.settings
        if name in self.stages:
            raise ConfigurationError(f"flow {self.name} has a stage {name!r} already: give this one another name=")
        failures = options.get("max_failures", min(settings.attempts_allowed - 1, MOST_FAILURES))
        if not isinstance(failures, int) or not 0 <= failures <= MOST_FAILURES:
            raise ConfigurationError(f"stage {name}: max_failures is {failures!r}; allowed: 0 to {MOST_FAILURES}")
        declared = Stage(
            name,
            job.name,
            options.get("queue", settings.queue),
            parent,
            applet,
            failures,
            _ms(options.get("backoff", 1.0)),
            _ms(options.get("max_backoff", max(3_600.0, delay_seconds(options.get("backoff", 1.0))))),
            options.get("final", False),
            options.get("keep_open", False),
            options.get("priority", settings.priority),
            tuple(options.get("tags", settings.tags)),
            _group_template(job, name, options.get("group")),
        )
        unique = _template(job, "unique", options.get("unique"), job.unique)
        serialize = _template(job, "serialize", options.get("serialize"), job.serialize)
        stage = self.stages[name] = FlowStage(self, job, declared, unique, serialize)
        return stage

    def _root(self) -> FlowStage[Any]:
        for stage in self.stages.values():
            return stage
        raise ConfigurationError(f"flow {self.name} has no stage: declare one, as in {self.name}.stage(job)")

    def start(self, items: Iterable[Any] = (), **options: Unpack[StartOptions]) -> FlowRun:
        """Create the flow on the servers, with items for its first stage, in calls of up to 1,000.

        Where one with the `dedupe_key` is there already it is that one, and `is_new` is False; it gets the items where
        their stage is not sealed and `unique` says which of them it has: so a start that was broken off may be run
        again. ArgumentsInvalid: nothing was sent; errors of the client.
        """
        root = self._root()
        calls = in_calls(list(root.items(items)))
        new = self._new(calls, options)
        try:
            created = self.app.client.create_flow(new)
        except QueueNotFound as error:
            self.app.clients.create_missing(_queues(new), error)
            created = self.app.client.create_flow(new)
        run = FlowRun(self.app, created.id, root, is_new=created.is_new)
        run.send(_left(calls, created))
        if (len(calls) > 1 or not created.is_new) and options.get("seal", False):
            run.seal(root)
        return run

    async def start_async(self, items: Iterable[Any] = (), **options: Unpack[StartOptions]) -> AsyncFlowRun:
        """`start` for an event loop."""
        root = self._root()
        calls = in_calls(list(root.items(items)))
        new, client = self._new(calls, options), self.app.async_client()
        try:
            created = await client.create_flow(new)
        except QueueNotFound as error:
            await self.app.clients.create_missing_async(_queues(new), error)
            created = await client.create_flow(new)
        run = AsyncFlowRun(self.app, created.id, root, is_new=created.is_new)
        await run.send(_left(calls, created))
        if (len(calls) > 1 or not created.is_new) and options.get("seal", False):
            await run.seal(root)
        return run

    def _new(self, calls: Sequence[Sequence[NewItem]], options: StartOptions) -> NewFlow:
        """With the items of the first of these calls."""
        _refuse_unknown(f"flow {self.name}", options, StartOptions)
        on_failure = options.get("on_failure", "go_on")
        if on_failure not in _ON_FAILURE:
            raise ConfigurationError(f"on_failure is {on_failure!r}; allowed: {', '.join(_ON_FAILURE)}")
        receiver = options.get("on_complete")
        callback = None
        if isinstance(receiver, JobType):
            _see_it_takes(receiver, ("flow",), "as on_complete= it gets flow, a FlowEnd")
            callback = CompletionCallback(receiver.settings.queue, receiver.name)
        elif receiver:
            if not isinstance(receiver, str) or not receiver.startswith(("http://", "https://")):
                raise ConfigurationError(f"on_complete is {receiver!r:.200}; allowed: a job of the app, or a URL")
            callback = CompletionCallback(url=receiver)
        metadata = options.get("metadata", {})
        for text in (options.get("dedupe_key", ""), *metadata, *metadata.values()):
            if not isinstance(text, str):
                raise ConfigurationError(f"dedupe_key or metadata has {text!r:.200}; allowed: texts")
        root = self._root().name
        return NewFlow(
            self.name,
            [stage.declared for stage in self.stages.values()],
            options.get("dedupe_key", ""),
            metadata,
            callback,
            _ON_FAILURE[on_failure],
            _ms(options.get("keep_for", WEEK_S)),
            {root: calls[0]} if calls else {},
            [root] if len(calls) < 2 and options.get("seal", False) else [],
        )


def _queues(flow: NewFlow) -> list[str]:
    """All that its jobs and its callback go to."""
    of_callback = {flow.on_complete.queue} if flow.on_complete and flow.on_complete.queue else set()
    return sorted({stage.queue for stage in flow.stages} | of_callback)


def _left(calls: Sequence[Sequence[NewItem]], created: FlowCreated) -> Sequence[Sequence[NewItem]]:
    """What is to be sent yet. To a flow that was there all of it, if no item can come twice by that."""
    if created.is_new:
        return calls[1:]
    return calls if all(item.dedupe_key for item in chain(*calls)) else []


def _job(job: object) -> JobType:
    """ConfigurationError: it is none, or cannot take items."""
    if not isinstance(job, JobType):
        raise ConfigurationError(f"{job!r:.200} is no job; allowed: a function with @app.job(queue=...) above it")
    if job.is_raw:
        raise ConfigurationError(f"job {job.name!r} is raw, and items come in an envelope; allowed: @app.job")
    return job


def _see_it_takes(job: object, names: Sequence[str], why: str) -> None:
    """ConfigurationError: it does not take these arguments."""
    try:
        _job(job).check_takes(*names)
    except ArgumentsInvalid as error:
        raise ConfigurationError(f"{error}; {why}") from error


def _group_template(job: JobType, stage: str, option: object) -> str:
    """What the server makes the groups of items by; "": they have none. ConfigurationError."""
    if option is None:
        own = job.settings.group
        return own if isinstance(own, str) and _is_of_payload(own) else ""
    if option is False:
        return ""
    if not isinstance(option, str) or not _is_of_payload(option):
        allowed = f"{TEMPLATE}; or False. No function: the server makes the groups of children too"
        raise ConfigurationError(f"stage {stage}: group is {option!r:.200}; allowed: {allowed}")
    job.key_template("group", option)
    return option


def _is_of_payload(template: str) -> bool:
    try:
        return bool(template_parts(template))
    except ValueError:
        return False


def _template(job: JobType, what: str, option: KeyOption | None, of_job: KeyTemplate | None) -> KeyTemplate | None:
    if option is None:
        return of_job
    return job.key_template(what, option) if option else None


def _refuse_unknown(where: str, options: Mapping[str, Any], known: type) -> None:
    unknown = sorted(options.keys() - known.__annotations__.keys())
    if unknown:
        allowed = ", ".join(known.__annotations__)
        raise ConfigurationError(f"{where}: there is no option {unknown[0]!r}; allowed: {allowed}")


def _ms(delay: Delay) -> int:
    return round(delay_seconds(delay) * 1_000)
