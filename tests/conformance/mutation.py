"""One guard taken out of one statement, and the named test that must fail without it.

A guard that can be taken out unnoticed is not tested. The change is made in memory, for one test, and undone.
"""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from pinlater.backends.redis.scripts import Script, load_scripts

STATEMENTS = {
    "sqlite": "pinlater.backends.sql.sqlite_connection",
    "mysql": "pinlater.backends.sql.mysql",
    "postgres": "pinlater.backends.sql.postgres",
}
"""Where the statements of a dialect are held once they are read."""


@dataclass(frozen=True)
class Change:
    """`store` is the name of a binding; `place` a script, a statement, or a module of pinlater.backends.sql (any other
    by its whole name); of DynamoDB, which has neither scripts nor statements, a module of its own.
    """

    store: str
    place: str
    old: str
    new: str
    is_module: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        return f"{self.store} {self.place}: {self.old.strip()[:50]} -> {self.new.strip()[:30] or 'nothing'}"

    def changed(self, text: str) -> str:
        """The text without the guard, which must stand in it exactly once."""
        found = text.count(self.old)
        assert found == 1, f"{self.old!r} stands {found} times in {self.place}: correct the list of mutations"
        return text.replace(self.old, self.new)

    @contextmanager
    def applied(self) -> Iterator[None]:
        if self.is_module or self.store == "dynamodb":
            manager = _module_changed(self)
        elif self.store == "redis":
            manager = _item_changed(load_scripts(), self.place, self._script(load_scripts()[self.place]))
        else:
            statements = import_module(STATEMENTS[self.store])._STATEMENTS
            manager = _item_changed(statements, self.place, self.changed(statements[self.place]))
        with manager:
            yield

    def _script(self, script: Script) -> Script:
        source = self.changed(script.source)
        return Script(script.name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


@dataclass(frozen=True)
class Mutation(Change):
    """A change, and the named test that must fail with it.

    `tries`: what goes wrong without a lock does not go wrong every time.
    """

    test: Callable[..., Any]
    given: Mapping[str, Any] = field(default_factory=dict)
    tries: int = 1


@contextmanager
def _item_changed(items: dict[str, Any], key: str, value: Any) -> Iterator[None]:
    before = items[key]
    items[key] = value
    try:
        yield
    finally:
        items[key] = before


@contextmanager
def _module_changed(change: Change) -> Iterator[None]:
    """Give every function of a module the code that it has in the changed source."""
    package = "dynamodb" if change.store == "dynamodb" else "sql"
    module = import_module(change.place if "." in change.place else f"pinlater.backends.{package}.{change.place}")
    changed = dict(module.__dict__)
    exec(compile(change.changed(inspect.getsource(module)), str(module.__file__), "exec"), changed)
    functions = dict(_functions(module.__dict__, module.__name__))
    codes = {name: function.__code__ for name, function in _functions(changed, module.__name__)}
    assert functions.keys() == codes.keys(), f"{module.__file__} was edited while the tests run"
    before = {name: function.__code__ for name, function in functions.items()}
    try:
        for name, function in functions.items():
            function.__code__ = codes[name]
        yield
    finally:
        for name, function in functions.items():
            function.__code__ = before[name]


def _functions(names: Mapping[str, Any], module: str) -> Iterator[tuple[str, types.FunctionType]]:
    """The functions that a module defines, and the methods of its classes."""
    for name, value in names.items():
        if isinstance(value, types.FunctionType) and value.__module__ == module:
            yield name, value
        elif isinstance(value, type) and value.__module__ == module:
            for method_name, method in vars(value).items():
                if isinstance(method, types.FunctionType):
                    yield f"{name}.{method_name}", method
