"""The reloader of a worker whose app is being developed (`--reload`): a change of a file begins the worker anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from watchfiles import Change, PythonFilter, awatch, watch

from pinlater_workers.app.settings import WorkerSettings, read_file
from pinlater_workers.cli.process_exit import say
from pinlater_workers.errors import ConfigurationError

GRACE_S = 2.0
"""How long running jobs may go on, where nobody gives a grace: whoever changes code does not want to wait for them."""

_FILTER = PythonFilter(extra_extensions=(".toml",))
"""Python's files and settings; hidden folders, caches and virtual environments are left out."""


class Reloader:
    """Watches the current folder, and `config`: the folders of a file, and of its import paths."""

    def __init__(self, config: str | None = None) -> None:
        folders = [Path.cwd()]
        if config is not None:
            with suppress(ConfigurationError):  # the file itself is wrong: a change of it ends that
                folders += read_file(config).import_paths
            folders.append(Path(config).absolute().parent)
        self._folders = [each for each in dict.fromkeys(folders) if each.is_dir()]

    def tune(self, settings: WorkerSettings, given: Mapping[str, Any]) -> WorkerSettings:
        return settings if given.get("grace") is not None else replace(settings, grace_s=min(settings.grace_s, GRACE_S))

    async def changed(self) -> str:
        """Waits for a change, and names the file."""
        async for changes in awatch(*self._folders, watch_filter=_FILTER):
            return _first(changes)
        raise RuntimeError("the watch of the code has ended")

    def wait_for_change(self) -> None:
        """Where no worker could begin, since the code is wrong."""
        say("--reload: waiting for a change of the code; Ctrl-C ends it")
        for changes in watch(*self._folders, watch_filter=_FILTER, raise_interrupt=True):
            say(f"{_first(changes)} has changed")
            return


def _first(changes: Iterable[tuple[Change, str]]) -> str:
    path = Path(min(path for _, path in changes))
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
