"""Apps by their names: "module:attribute" of one that code makes, or the path of a file."""

from __future__ import annotations

from pathlib import Path

from pinlater_workers.app import App
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.file import read_file
from pinlater_workers.importing import add_import_paths, import_object
from pinlater_workers.worker_settings import WorkerSettings

FILE = "file:"


def load_app(spec: str) -> App:
    """The app that "module:attribute" or "file:PATH" names. ConfigurationError says what to do."""
    if spec.startswith(FILE):
        return load_file(spec.removeprefix(FILE))[0]
    app = _import_app(spec, "--app")
    app.check()
    return app


def load_file(path: str | Path) -> tuple[App, WorkerSettings]:
    """The app of a file, or the one that it names, and what it says of the worker. ConfigurationError."""
    file = read_file(path)
    add_import_paths(file.import_paths)
    app = _import_app(file.app, f"{path}: app") if file.app else App()
    app.follow(file)
    app.check()
    return app, app.worker_settings


def _import_app(spec: str, where: str) -> App:
    found = import_object(spec, where, "mail.jobs:app")
    if not isinstance(found, App):
        raise ConfigurationError(
            f"{where} is {spec!r}, a {type(found).__name__}; allowed: an App, as in app = App(...)"
        )
    return found
