"""The reloader of a worker whose app is being developed (`--reload`): a change of a file begins the worker anew."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from watchfiles import Change, PythonFilter, awatch, watch

from pinlater_workers.app.settings import WorkerSettings, read_file
from pinlater_workers.errors import ConfigurationError

GRACE_S = 2.0
"""How long running jobs may go on, where nobody gives a grace: whoever changes code does not want to wait for them."""

_LOOK_MS = 500
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
        self._since_s = time.time()
        self._folders = [each for each in dict.fromkeys(folders) if each.is_dir()]

    def tune(self, settings: WorkerSettings, given: Mapping[str, Any]) -> WorkerSettings:
        return settings if given.get("grace") is not None else replace(settings, grace_s=min(settings.grace_s, GRACE_S))

    async def changed(self) -> str:
        """Waits for a change since this was made, and names the file."""
        async for changes in awatch(*self._folders, watch_filter=_FILTER, rust_timeout=_LOOK_MS, yield_on_timeout=True):
            if found := _first(changes) if changes else self._missed():
                return found
        raise RuntimeError("the watch of the code has ended")

    def wait_for_change(self) -> str:
        """The same where no event loop runs. KeyboardInterrupt."""
        for changes in watch(*self._folders, watch_filter=_FILTER, rust_timeout=_LOOK_MS, yield_on_timeout=True):
            if found := _first(changes) if changes else self._missed():
                return found
        raise RuntimeError("the watch of the code has ended")

    def _missed(self) -> str:
        """A file that changed before the watch had begun, while the code was imported; "": none. Looks once."""
        since_s, self._since_s = self._since_s, math.inf
        if since_s == math.inf:
            return ""
        for folder in self._folders:
            for root, folders, files in os.walk(folder):
                folders[:] = [each for each in folders if each not in _FILTER.ignore_dirs]
                for path in (os.path.join(root, file) for file in files):
                    with suppress(FileNotFoundError):  # an editor's own file, that is gone again
                        if _FILTER(Change.modified, path) and os.stat(path).st_mtime > since_s:
                            return _shown(path)
        return ""


def _first(changes: Iterable[tuple[Change, str]]) -> str:
    return _shown(min(path for _, path in changes))


def _shown(path: str) -> str:
    """From the current folder, where it is there."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path
