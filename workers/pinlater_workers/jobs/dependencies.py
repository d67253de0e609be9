"""Dependencies of jobs by annotation: the providers of an app, and what they have made in this process.

A parameter of a job is a dependency where its annotation is what a provider of the app returns, or where its default is
`provided`. It is no argument: an enqueue does not take it, and no body has it. The value is made once in a process.
"""

from __future__ import annotations

import functools
import inspect
import threading
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from typing import Any

from pinlater_workers.errors import ConfigurationError


class _Provided:
    def __repr__(self) -> str:
        return "provided"


provided: Any = _Provided()
"""The default of a parameter that the app provides: a type checker then takes calls of `enqueue` without it."""

_YIELDS = (Iterator, Iterable, Generator, AsyncIterator, AsyncGenerator)
_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Provider:
    """A function that makes what jobs are annotated with: it returns it; or it yields it, and goes on when the process
    ends. ConfigurationError: it takes arguments, or its annotation does not say what it makes.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.place = f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', function)}"
        self.yields = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        if inspect.signature(function).parameters:
            raise ConfigurationError(f"provider {self.place} takes parameters; allowed: a function without any")
        try:
            made = typing.get_type_hints(function, include_extras=True).get("return")
        except Exception as error:
            raise ConfigurationError(f"provider {self.place}: its annotation cannot be resolved: {error}") from error
        if self.yields and typing.get_origin(made) in _YIELDS:
            made = typing.get_args(made)[0]
        elif self.yields:
            made = None
        if made in (None, type(None), Any):
            form = "-> Iterator[Pool] (or AsyncIterator)" if self.yields else "-> Pool"
            raise ConfigurationError(f"provider {self.place} does not say what it makes; annotate it, as in {form}")
        self.makes: Any = made


class _Made:
    """What a provider has made, and the generator that goes on at the end."""

    __slots__ = ("generator", "value")

    def __init__(self, value: Any, generator: Any = None) -> None:
        self.value = value
        self.generator = generator


class Providers:
    """The providers of an app, and what they have made in this process, each once, by any thread."""

    def __init__(self) -> None:
        self._by_type: dict[Any, Provider] = {}
        self._made: dict[Any, _Made] = {}
        self._lock = threading.RLock()

    def add(self, function: Callable[[], Any]) -> Provider:
        """ConfigurationError: its type has a provider already, or it is none."""
        provider = Provider(function)
        other = self._by_type.get(provider.makes)
        if other is not None:
            name = shown_type(provider.makes)
            raise ConfigurationError(
                f"two providers make {name}, {other.place} and {provider.place}; keep one, or tell them apart by "
                f'Annotated[{name}, "replica"]'
            )
        self._by_type[provider.makes] = provider
        return provider

    def has(self, hint: Any) -> bool:
        """Whether a provider makes this."""
        try:
            return hint in self._by_type
        except TypeError:  # an annotation that has no hash
            return False

    @property
    def has_made(self) -> bool:
        """Whether something is to be ended in this process."""
        return bool(self._made)

    def value(self, hint: Any) -> Any:
        """What is provided, made now where it is not yet. ConfigurationError: nothing is, or it needs an event loop."""
        found = self._made.get(hint)
        if found is not None:
            return found.value
        with self._lock:
            found = self._made.get(hint)
            if found is None:
                provider = self._provider(hint)
                if provider.is_async:
                    raise ConfigurationError(
                        f"provider {provider.place} is a coroutine, and what it makes is not made yet in this process: "
                        "only coroutine jobs can have it made"
                    )
                if provider.yields:
                    generator = provider.function()
                    found = _Made(next(generator), generator)
                else:
                    found = _Made(provider.function())
                self._made[hint] = found
        return found.value

    async def value_async(self, hint: Any) -> Any:
        """`value` on an event loop, where a provider may be a coroutine."""
        found = self._made.get(hint)
        if found is not None:
            return found.value
        provider = self._provider(hint)
        if not provider.is_async:
            return self.value(hint)
        if provider.yields:
            generator = provider.function()
            made = _Made(await anext(generator), generator)
        else:
            made = _Made(await provider.function())
        kept = self._made.setdefault(hint, made)
        if kept is not made and inspect.isasyncgen(made.generator):  # another coroutine was first
            await anext(made.generator, None)
        return kept.value

    def place_of(self, hint: Any) -> str:
        """Of its provider. ConfigurationError: there is none."""
        return self._provider(hint).place

    def _provider(self, hint: Any) -> Provider:
        provider = self._by_type.get(hint)
        if provider is None:
            raise ConfigurationError(f"nothing provides {shown_type(hint)}: put @app.provide above a function of it")
        return provider

    async def close_async(self) -> list[tuple[Provider, Exception]]:
        """End what was made, the last first. What failed, of those that yield."""
        made, self._made = self._made, {}
        failed: list[tuple[Provider, Exception]] = []
        for hint, each in reversed(made.items()):
            try:
                if inspect.isasyncgen(each.generator):
                    await anext(each.generator, None)
                elif each.generator is not None:
                    next(each.generator, None)
            except Exception as error:
                failed.append((self._by_type[hint], error))
        return failed

    @contextmanager
    def replaced(self, values: Mapping[Any, Any]) -> Iterator[None]:
        """For a test: these values count, and what is made in the block is ended with it."""
        before = self._made
        self._made = {**before, **{hint: _Made(value) for hint, value in values.items()}}
        try:
            yield
        finally:
            made, self._made = self._made, before
            for each in reversed(made.values()):
                if inspect.isgenerator(each.generator) and each not in before.values():
                    next(each.generator, None)


class Dependencies:
    """The parameters of one function that are provided, by name. ConfigurationError: one that cannot be."""

    def __init__(self, function: Callable[..., Any], job: str, providers: Providers) -> None:
        self.types: dict[str, Any] = {}
        self._function = function
        self._providers = providers
        self._places: list[tuple[int, str]] = []
        try:
            signature = inspect.signature(function)
            hints = typing.get_type_hints(function, include_extras=True)
        except Exception:  # which is said where arguments are looked at
            return
        self._signature = signature
        for place, parameter in enumerate(signature.parameters.values()):
            name, hint = parameter.name, hints.get(parameter.name)
            if parameter.default is not provided and (hint is None or not providers.has(hint)):
                continue
            if hint is None or parameter.kind not in _KEYWORD:
                raise ConfigurationError(
                    f"job {job!r}: parameter {name!r} is provided; allowed: one with an annotation that can be given "
                    "by name"
                )
            self.types[name] = hint
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                self._places.append((place, name))

    def without(self) -> Callable[..., Any]:
        """The function as callers see it: without what is provided."""

        @functools.wraps(self._function)
        def called(*args: Any, **kwargs: Any) -> Any:
            return self._function(*args, **kwargs)

        left = [each for each in self._signature.parameters.values() if each.name not in self.types]
        called.__signature__ = self._signature.replace(parameters=left)  # type: ignore[attr-defined]
        return called

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with these arguments, and what is provided."""
        return self._call(args, kwargs, {name: self._providers.value(hint) for name, hint in self.types.items()})

    async def call_async(self, *args: Any, **kwargs: Any) -> Any:
        """`call` of a coroutine function."""
        values = {name: await self._providers.value_async(hint) for name, hint in self.types.items()}
        return await self._call(args, kwargs, values)

    def _call(self, args: Sequence[Any], kwargs: Mapping[str, Any], values: dict[str, Any]) -> Any:
        """Those that stand among arguments by position get their place there."""
        placed = list(args)
        for place, name in self._places:
            if place < len(placed):
                placed.insert(place, values.pop(name))
        return self._function(*placed, **kwargs, **values)


def unprovided(needs: Collection[tuple[str, Dependencies]], providers: Providers) -> None:
    """ConfigurationError: a job needs what nothing provides."""
    for job, dependencies in needs:
        for name, hint in dependencies.types.items():
            if not providers.has(hint):
                raise ConfigurationError(
                    f"job {job!r}: nothing provides its parameter {name!r}: put @app.provide above a function that "
                    f"is annotated to make {shown_type(hint)}"
                )


def shown_type(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint).replace("typing.", "")
