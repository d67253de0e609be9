"""Objects by their names, "module:attribute", as command lines and files give them."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from pinlater_workers.errors import ConfigurationError

_SPEC = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


def import_object(spec: object, where: str, example: str = "mail.jobs:send") -> object:
    """What it names. ConfigurationError: it is not of that form, or there is no such module or attribute.

    An error of the module itself is its cause. `where` stands in front of the message.
    """
    match = _SPEC.fullmatch(spec) if isinstance(spec, str) else None
    if match is None:
        raise ConfigurationError(f"{where} is {spec!r}; allowed: MODULE:NAME, as in {example}")
    module, path = match.groups()
    try:
        found: object = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        hint = "; is its folder in PYTHONPATH, or in import_paths?" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigurationError(
            f"{where} is {spec!r}: importing {module} failed: {type(error).__name__}: {error}{hint}"
        ) from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ConfigurationError(f"{where} is {spec!r}: {module} has no {path}") from None
    return found


def add_import_paths(folders: Iterable[Path]) -> None:
    """Modules are looked for in these folders first."""
    for folder in reversed(list(folders)):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
