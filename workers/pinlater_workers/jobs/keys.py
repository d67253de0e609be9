"""Keys of jobs, made from their arguments: templates such as "{user_id}", or functions.

A template is a text as of `str.format`, whose fields name parameters of the job's function, with attributes and items
where there are some: "{order.account}-{kind}". It is checked when the job is declared. A function is called as the
job's function would be; None from it: no key for this job.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from string import Formatter
from typing import Any, Literal

from pinlater.model import MAX_KEY_BYTES
from pinlater.near_names import meant_name
from pinlater_workers.errors import ArgumentsInvalid, ConfigurationError

KeyOption = str | Callable[..., str | None] | Literal[False]
"""A template or a function; False: no key, whatever the type of job says."""

KEY_ALLOWED = f"a text of 1 to {MAX_KEY_BYTES} bytes with no @ in front"
_ROOT = re.compile(r"[^.\[]*")


def key_option(value: object) -> KeyOption:
    """TypeError: neither a template nor a function. ValueError: a template that cannot be read."""
    if value is False or (callable(value) and not isinstance(value, type)):
        return value
    if not isinstance(value, str):
        raise TypeError
    if not value:
        raise ValueError("it is empty")
    _fields(value)
    return value


def _fields(template: str) -> list[str]:
    """The names of the parameters in it. ValueError."""
    found: list[str] = []
    for _, field, spec, _ in Formatter().parse(template):
        if field is not None:
            found += [_ROOT.match(field)[0], *_fields(spec or "")]  # type: ignore[index]
    return found


class KeyTemplate:
    """What makes the key of a job. `what`: the option that says so, for errors."""

    def __init__(
        self,
        what: str,
        option: str | Callable[..., str | None],
        function: Callable[..., Any],
        job: str,
        secrets: Collection[str] = (),
    ) -> None:
        """`function`: whose parameters are the arguments. ConfigurationError: it names others, or a secret."""
        self._what = what
        self._job = job
        self._template = option if isinstance(option, str) else None
        self._function = option if callable(option) else None
        self._signature = inspect.signature(function)
        if self._template is not None:
            self._check(_fields(self._template), secrets)

    def _check(self, named: Sequence[str], secrets: Collection[str]) -> None:
        parameters = self._signature.parameters
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        names = [name for name, each in parameters.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        where = f"job {self._job!r}: {self._what} is {self._template!r}"
        for name in named:
            if name in secrets:
                raise ConfigurationError(
                    f"{where}, and {name!r} is secret: keys are shown; leave it out, or give a function that hashes it"
                )
            if name not in names and not (takes_any and name.isidentifier()):
                raise ConfigurationError(
                    f"{where}, and the function has no argument {name!r}; allowed: {', '.join(names) or 'none'}"
                    f"{meant_name(name, names)}"
                )

    def key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Of a job with these arguments, which its function takes; None: none. ArgumentsInvalid: what is no key."""
        try:
            found = self._format(args, kwargs) if self._function is None else self._function(*args, **kwargs)
        except Exception as error:
            raise ArgumentsInvalid(
                f"job {self._job!r}: {self._what} cannot be made from its arguments: {type(error).__name__}: {error}"
            ) from error
        if found is None:
            return None
        if not isinstance(found, str) or not found or found.startswith("@"):
            raise ArgumentsInvalid(f"job {self._job!r}: {self._what} is {found!r:.100}; allowed: {KEY_ALLOWED}")
        return found

    def _format(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        assert self._template is not None
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = dict(bound.arguments)
        for name, each in self._signature.parameters.items():
            if each.kind is each.VAR_KEYWORD:
                named.update(named.pop(name))
        return Formatter().vformat(self._template, (), named)


def checked_size(job: str, what: str, key: str) -> str:
    """ArgumentsInvalid: too long."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise ArgumentsInvalid(f"job {job!r}: {what} is {key!r:.100}, which is no Unicode: {error}") from None
    if size > MAX_KEY_BYTES:
        raise ArgumentsInvalid(
            f"job {job!r}: {what} has {size} bytes; allowed: {KEY_ALLOWED}; for a longer one give a function that "
            "hashes it"
        )
    return key
