"""A type of job: a function, its settings, and the ways to enqueue it, one job or many."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from pinlater.job_body import FIRST_LINES, ITEM_HEADER, SECRET_HEADER, EnvelopeMap
from pinlater.schedule import Delay
from pinlater_workers.envelope import ENCODERS, Envelope, write_around
from pinlater_workers.errors import ArgumentsInvalid, ConfigurationError
from pinlater_workers.jobs.arguments import Arguments, argument_hints, result_hint
from pinlater_workers.jobs.batch import call_alone, call_signature, takes_batch
from pinlater_workers.jobs.dependencies import Dependencies
from pinlater_workers.jobs.elsewhere import CALLS, says_unknown_options
from pinlater_workers.jobs.enqueue_calls import Producer
from pinlater_workers.jobs.enqueue_options import Call, EnqueueOptions, OptionArguments, TypedOptions
from pinlater_workers.jobs.handle import AsyncJobHandle, JobHandle
from pinlater_workers.jobs.keys import KeyOption, KeyTemplate
from pinlater_workers.jobs.results import RESULT_HEADER, ResultCodec, written_json
from pinlater_workers.jobs.settings import JobSettings

P = ParamSpec("P")
ResultT = TypeVar("ResultT", covariant=True)
AwaitedT = TypeVar("AwaitedT")

BodyWriter = Callable[[Sequence[Any], Mapping[str, Any]], bytes]
"""Writes the body of a job from its arguments by position and by name. ArgumentsInvalid."""

FORMER_OPTIONS = frozenset({"delay", "run_after", "priority"})
"""What `enqueue` takes by name beside the arguments, where no parameter of the function has the name."""


class JobType:
    """A type of job: a function and its settings, with the ways to enqueue it.

    Called, it is the plain function; that of batches gets a batch of one. A file may change `settings` after it was
    made, never while it runs.
    """

    def __init__(self, producer: Producer, function: Callable[..., Any], name: str, settings: JobSettings) -> None:
        """ConfigurationError: a function that cannot be a job."""
        _refuse_method(function, name)
        functools.update_wrapper(self, function)
        self._producer = producer
        self.function: Callable[..., Any] = function.function if isinstance(function, JobType) else function
        self.name = name
        self.is_coroutine = inspect.iscoroutinefunction(self.function)
        self.is_raw = settings.raw
        self.is_batch = settings.batch is not None
        if not self.is_batch and takes_batch(self.function):
            raise ConfigurationError(f"job {name!r} takes a Batch: set the most jobs of one, as in batch=100")
        self.dependencies = needs = Dependencies(self.function, name, producer.providers)
        """Its parameters that the app provides."""
        self.call: Callable[..., Any] = self.function
        """What an attempt calls: the function, with what is provided."""
        called = self.function
        if needs.types:
            self.call, called = needs.call_async if self.is_coroutine else needs.call, needs.without()
        self._called: Callable[..., Any] = call_signature(called, name) if self.is_batch else called
        self._arguments = Arguments(self._called, name)
        self.settings = settings
        self._former = FORMER_OPTIONS - self._arguments.names
        self._plain: EnqueueOptions[...] = EnqueueOptions(self)
        self.result_noted = False
        """Whether an attempt in this process has said that it returned something."""
        self.warned_of_dropped = False
        """Whether a handle of this process has said that the result it was asked for is not kept."""
        self.warned_of_kept = False
        """Whether an enqueue of this process has said that newer arguments were not taken."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(f"job {name!r} is a generator; allowed: a plain or a coroutine function")

    @property
    def settings(self) -> JobSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: JobSettings) -> None:
        """ConfigurationError: a secret or a key that is of no parameter; a result that cannot be kept."""
        if settings.raw and settings.keep_result:
            raise ConfigurationError(
                f"job {self.name!r} is raw, and what it returns is not kept; leave keep_result out"
            )
        if settings.raw and settings.secret:
            raise ConfigurationError(f"job {self.name!r} is raw, and its bodies have no place for secret; leave it out")
        self._secret = self._arguments.hide(settings.secret)
        self._settings = settings
        self.unique = self._template("unique", settings.unique)
        self.serialize = self._template("serialize", settings.serialize)
        self.group = self._template("group", settings.group)
        has_times = settings.expires_s is not None or settings.claim_timeout_s is not None
        self.extends = bool(self.unique or self.serialize or self.group or has_times or settings.tags)
        """Whether its jobs have keys, an expiry or another option that few jobs have."""
        self._results: ResultCodec | None = None
        self.keeps = settings.keep_result
        if self.keeps:
            self.needs_results()

    def _template(self, what: str, option: KeyOption | None) -> KeyTemplate | None:
        return self.key_template(what, option) if option else None

    def key_template(self, what: str, option: KeyOption) -> KeyTemplate:
        """Return the template of a key; `what`: the option. ConfigurationError: it names no argument."""
        if self.is_raw and isinstance(option, str):
            raise ConfigurationError(
                f"job {self.name!r} is raw, and {what} is the template {option!r}; allowed: a function of the body"
            )
        assert option
        return KeyTemplate(what, option, self._called, self.name, self.settings.secret)

    def needs_results(self) -> ResultCodec:
        """Check that its results can be kept, else raise ConfigurationError."""
        if self._results is None:
            hint = Any if self.is_batch else result_hint(self.function, self.name)
            self._results = ResultCodec(hint, self.name, is_open=not self.is_batch)
        return self._results

    def keeps_result(self, headers: Mapping[str, str]) -> bool:
        """Whether the result of a job with these headers is kept. That of an item of a flow always is."""
        header = headers.get(RESULT_HEADER)
        if header is None:
            return self.settings.keep_result or ITEM_HEADER in headers
        return header == "1"

    def write_result(self, result: Any, headers: Mapping[str, str]) -> bytes:
        """Write the result of a job with these headers. ResultInvalid: it cannot be kept."""
        codec = self.needs_results()
        return codec.write_json(result) if ITEM_HEADER in headers else codec.write(result, self.settings.encoding)

    @property
    def promises_result(self) -> bool:
        """Whether its function is annotated to return something besides None."""
        return not self.is_batch and result_hint(self.function, self.name) not in (Any, None, type(None))

    def read_result(self, result: bytes) -> Any:
        """Read a result of this type. BodyInvalid: it is none."""
        return self.needs_results().read(result)

    def read_item_result(self, result: bytes) -> Any:
        """Read the result of an item of a flow. BodyInvalid: it is none of this type."""
        return self.needs_results().read_json(result)

    def payload(self, arguments: Any) -> bytes:
        """Write an item of a flow as JSON: a dict is the arguments by their names, anything else the only argument.
        ArgumentsInvalid.
        """
        by_name = isinstance(arguments, Mapping) and not self.is_batch
        args, kwargs = ([], arguments) if by_name else ([arguments], {})
        self._arguments.check(args, kwargs, "json")
        try:
            return written_json(arguments)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self._arguments.check_written(args, kwargs, "json")
            raise ArgumentsInvalid(f"job {self.name!r}: {error}") from error

    @property
    def argument_hints(self) -> list[Any]:
        """The annotations of its arguments."""
        hints = argument_hints(self._called, self.name)
        return [hints[name] for name in inspect.signature(self._called).parameters if name in hints]

    def check_takes(self, *names: str) -> None:
        """Check that it can be called with a dict of these arguments, else raise ArgumentsInvalid."""
        if not self.is_batch:
            self._arguments.check_names(*names)

    @property
    def app(self) -> Producer:
        """The app that it was declared with."""
        return self._producer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.is_batch:
            return self.function(*args, **kwargs)
        given = {name: kwargs.pop(name) for name in self.dependencies.types.keys() & kwargs.keys()}
        self._arguments.check(args, kwargs, self.settings.encoding)
        return call_alone(functools.partial(self.function, **given), args[0])

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """AttributeError: for the names of other frameworks it says what to write."""
            here = CALLS.get(name)
            if here is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            job = self.__dict__.get("name", "job")
            raise AttributeError(f"a job has no .{name}(...); write {job}.{here}", name=name, obj=self)

    def __reduce__(self) -> str:
        """Pickled and copied as a function is: by its module and name, under which it is found."""
        return str(getattr(self, "__qualname__", self.name))

    def __repr__(self) -> str:
        return f"<job {self.name!r} of queue {self.settings.queue!r}>"

    @says_unknown_options(OptionArguments)
    def options(self, **options: Unpack[OptionArguments]) -> TypedOptions[..., Any]:
        """Set options of an enqueue, beside the arguments of the function: `.options(delay="5m").enqueue(...)`.

        `delay`: seconds, a text as in "5m", or a timedelta; `run_after`: an aware datetime, or milliseconds since 1970.
        `priority`, `queue`, `attempts`: others than the type's. `headers`: texts that travel with the job, which
        middleware sees. `unique`, `unique_for`, `on_duplicate`, `replace_running`, `replace_within`, `serialize`,
        `expires`, `claim_timeout`, `keep_result`, `tags`, `group`: as for `App.job`, in place of the type's; False for
        no key or group, and `expires` may be an aware datetime. ValueError: what cannot be.
        """
        return TypedOptions(self, **options)

    def enqueue(self, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Store a job for these arguments, and return its handle. `options` sets when, and all else.

        ArgumentsInvalid, ValueError: nothing was sent. EnqueueRejected: on_duplicate is "reject". Else the
        errors of Client.enqueue.
        """
        options, kwargs = self._former_options(kwargs)
        return options.enqueue(*args, **kwargs)

    def enqueue_many(
        self,
        calls: Iterable[Call],
        *,
        delay: Delay | None = None,
        run_after: datetime | int | None = None,
        priority: int | None = None,
    ) -> list[JobHandle[Any]]:
        """Store a job for each call, in calls of up to 500, and return their handles in order.

        A call is a tuple (or list) of arguments, or a dict of them by name. ArgumentsInvalid, ValueError: nothing was
        sent. EnqueuedInPart: only the first are stored, and it has their handles.
        """
        return self.options(delay=delay, run_after=run_after, priority=priority).enqueue_many(calls)

    async def enqueue_async(self, *args: Any, **kwargs: Any) -> AsyncJobHandle[Any]:
        """`enqueue` for an event loop."""
        options, kwargs = self._former_options(kwargs)
        return await options.enqueue_async(*args, **kwargs)

    async def enqueue_many_async(
        self,
        calls: Iterable[Call],
        *,
        delay: Delay | None = None,
        run_after: datetime | int | None = None,
        priority: int | None = None,
    ) -> list[AsyncJobHandle[Any]]:
        """`enqueue_many` for an event loop."""
        return await self.options(delay=delay, run_after=run_after, priority=priority).enqueue_many_async(calls)

    def body(self, *args: Any, **kwargs: Any) -> bytes:
        """Return the body of a job for these arguments, without headers. ArgumentsInvalid."""
        return self.write_body(args, kwargs, {})

    def write_body(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], headers: dict[str, str], attempts: int = 0
    ) -> bytes:
        """`body` with headers; `attempts`: how many this job has, where they are not those of its type."""
        return self.body_writer(headers, attempts)(args, kwargs)

    def body_writer(self, headers: dict[str, str], attempts: int = 0) -> BodyWriter:
        """Return `write_body` for many calls, one after the other."""
        if self.settings.raw:
            return self._raw_body
        encoding = self.settings.encoding
        if self._secret:
            headers = {**headers, SECRET_HEADER: self._secret}
        written = EnvelopeMap(self.name, headers=headers, attempts=attempts)
        first_line, encode, check = FIRST_LINES[encoding], ENCODERS[encoding], self._arguments.check

        def write(args: Any, kwargs: Any) -> bytes:
            check(args, kwargs, encoding)
            written.args, written.kwargs = args or [], kwargs
            try:
                return first_line + encode(written)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                self._arguments.check_written(args, kwargs, encoding)
                raise ArgumentsInvalid(f"job {self.name!r}: {error}") from error

        return write

    def write_bodies(self, calls: Sequence[Call], headers: dict[str, str], attempts: int = 0) -> list[bytes] | None:
        """Write what `write_body` does for each of these calls, all at once, which is quicker. None: they are not
        enough alike, or one of them is wrong. ArgumentsInvalid: all of them are.
        """
        if self.settings.raw or not self._arguments.surely_takes(calls):
            return None
        if self._secret:
            headers = {**headers, SECRET_HEADER: self._secret}
        encoding, named = self.settings.encoding, isinstance(calls[0], dict)
        encode = ENCODERS[encoding]
        try:
            before, after = write_around(self.name, headers, attempts, encoding, named=named)
            return [before + encode(call) + after for call in calls]
        except (TypeError, ValueError, OverflowError):
            return None

    def arguments(self, envelope: Envelope) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments in a body, as the function's annotations want them. ArgumentsInvalid: it does not take
        them.

        A job of a batch has one argument. A body that names several is read as a map of them: it was enqueued when the
        function took one job, by these names.
        """
        args, kwargs = envelope.args, envelope.kwargs
        if self.is_batch and kwargs and not args:
            args, kwargs = [kwargs], {}
        return self._arguments.read(args, kwargs, envelope.encoding)

    def _former_options(self, kwargs: dict[str, Any]) -> tuple[EnqueueOptions[...], dict[str, Any]]:
        """The options that stand among the arguments by name, as they did before `options`; and the arguments."""
        if not kwargs or self._former.isdisjoint(kwargs):
            return self._plain, kwargs
        arguments = {name: value for name, value in kwargs.items() if name not in self._former}
        return EnqueueOptions(self, **{name: kwargs[name] for name in self._former & kwargs.keys()}), arguments

    def _raw_body(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        if len(args) != 1 or kwargs or not isinstance(args[0], bytes):
            raise ArgumentsInvalid(f"job {self.name!r}: it is raw; allowed: one argument, the body as bytes")
        return args[0]


def _refuse_method(function: object, job: str) -> None:
    """ConfigurationError: a method, which a worker has no object for."""
    if isinstance(function, staticmethod):
        raise ConfigurationError(f"job {job!r} is a staticmethod; allowed: a function, so @staticmethod above @app.job")
    if isinstance(function, classmethod):
        raise ConfigurationError(f"job {job!r} is a classmethod; allowed: a function, which may call that method")
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not owner or owner.endswith("<locals>") or not inspect.isfunction(function):
        return
    first = next(iter(inspect.signature(function).parameters), "")
    if first in ("self", "cls"):
        kind = owner.rpartition(".")[2]
        raise ConfigurationError(
            f"job {job!r} is a method of {kind}, and a worker has no {kind} to call it on; allowed: a function, which "
            f"makes one from its arguments; or without {first}, and with @staticmethod above @app.job"
        )


class JobFunction(JobType, Generic[P, ResultT]):
    """A job type whose calls and enqueues are checked by a type checker as the calls of its function."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ResultT: ...

        @typing.overload
        def enqueue(
            self: JobFunction[P, Coroutine[Any, Any, AwaitedT]], *args: P.args, **kwargs: P.kwargs
        ) -> JobHandle[AwaitedT]: ...

        @typing.overload
        def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[ResultT]: ...

        def enqueue(self, *args: Any, **kwargs: Any) -> JobHandle[Any]: ...

        @typing.overload
        async def enqueue_async(
            self: JobFunction[P, Coroutine[Any, Any, AwaitedT]], *args: P.args, **kwargs: P.kwargs
        ) -> AsyncJobHandle[AwaitedT]: ...

        @typing.overload
        async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJobHandle[ResultT]: ...

        async def enqueue_async(self, *args: Any, **kwargs: Any) -> AsyncJobHandle[Any]: ...

        @typing.overload
        def enqueue_many(
            self: JobFunction[P, Coroutine[Any, Any, AwaitedT]],
            calls: Iterable[Call],
            *,
            delay: Delay | None = None,
            run_after: datetime | int | None = None,
            priority: int | None = None,
        ) -> list[JobHandle[AwaitedT]]: ...

        @typing.overload
        def enqueue_many(
            self,
            calls: Iterable[Call],
            *,
            delay: Delay | None = None,
            run_after: datetime | int | None = None,
            priority: int | None = None,
        ) -> list[JobHandle[ResultT]]: ...

        def enqueue_many(self, calls: Iterable[Call], **options: Any) -> list[JobHandle[Any]]: ...

        @typing.overload
        async def enqueue_many_async(
            self: JobFunction[P, Coroutine[Any, Any, AwaitedT]],
            calls: Iterable[Call],
            *,
            delay: Delay | None = None,
            run_after: datetime | int | None = None,
            priority: int | None = None,
        ) -> list[AsyncJobHandle[AwaitedT]]: ...

        @typing.overload
        async def enqueue_many_async(
            self,
            calls: Iterable[Call],
            *,
            delay: Delay | None = None,
            run_after: datetime | int | None = None,
            priority: int | None = None,
        ) -> list[AsyncJobHandle[ResultT]]: ...

        async def enqueue_many_async(self, calls: Iterable[Call], **options: Any) -> list[AsyncJobHandle[Any]]: ...

        def body(self, *args: P.args, **kwargs: P.kwargs) -> bytes: ...

        @typing.overload
        def options(
            self: JobFunction[P, Coroutine[Any, Any, AwaitedT]], **options: Unpack[OptionArguments]
        ) -> TypedOptions[P, AwaitedT]: ...

        @typing.overload
        def options(self, **options: Unpack[OptionArguments]) -> TypedOptions[P, ResultT]: ...

        def options(self, **options: Unpack[OptionArguments]) -> TypedOptions[P, Any]: ...
