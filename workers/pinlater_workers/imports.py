"""Modules and objects by the names that settings give them.

A mistake is a ConfigurationError that says where it stands. An error of the module itself is the cause of that error.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from pinlater.near_names import meant_name
from pinlater_workers.errors import ConfigurationError

_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_SPEC = re.compile(rf"({_MODULE.pattern}):({_MODULE.pattern})")


def import_object(spec: object, where: str, example: str = "mail.jobs:send") -> object:
    """What it names. ConfigurationError: it is not of that form, or there is no such module or attribute.

    An error of the module itself is its cause. `where` stands in front of the message.
    """
    match = _SPEC.fullmatch(spec) if isinstance(spec, str) else None
    if match is None:
        raise ConfigurationError(f"{where} is {spec!r}; allowed: MODULE:NAME, as in {example}")
    module, path = match.groups()
    if module.endswith(".py") and not Path(*module.split(".")).exists():
        raise ConfigurationError(f"{where} is {spec!r}: a module is named as in an import; write {module[:-3]}:{path}")
    found: object = import_module(module, f"{where} is {spec!r}")
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            meant = meant_name(name, [each for each in dir(found) if not each.startswith("_")])
            raise ConfigurationError(f"{where} is {spec!r}: {module} has no {path}{meant}") from None
    return found


def import_module(name: str, where: str) -> ModuleType:
    """ConfigurationError: it cannot be imported, for the reason that is its cause. `where` stands in front."""
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        hint = "; is its folder in PYTHONPATH, or in import_paths?" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigurationError(f"{where}: importing {name} failed: {type(error).__name__}: {error}{hint}") from error


def import_modules(names: Iterable[str], where: str) -> None:
    """Modules, and with `.*` behind a package all modules within it, at any depth. ConfigurationError, as above."""
    for name in names:
        origin = f"{where} has {name!r}"
        package, star = name.removesuffix(".*"), name.endswith(".*")
        if not _MODULE.fullmatch(package):
            raise ConfigurationError(f"{origin}; allowed: a module, as in shop.jobs, or all of a package, as in shop.*")
        module = import_module(package, origin)
        if not star:
            continue
        path = getattr(module, "__path__", None)
        if path is None:
            raise ConfigurationError(f"{origin}: {package} is a module, no package; leave .* out")
        for found in _modules_within(path, f"{package}."):
            import_module(found, origin)


def _modules_within(path: Iterable[str], prefix: str) -> Iterator[str]:
    """Without importing any; programs (`__main__`) are left out."""
    for finder, name, is_package in pkgutil.iter_modules(path, prefix):
        if name.rpartition(".")[2] == "__main__":
            continue
        yield name
        if is_package:
            spec = finder.find_spec(name, None)
            if spec is not None and spec.submodule_search_locations:
                yield from _modules_within(spec.submodule_search_locations, f"{name}.")


def add_import_paths(folders: Iterable[Path]) -> None:
    """Modules are looked for in these folders first."""
    for folder in reversed(list(folders)):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
