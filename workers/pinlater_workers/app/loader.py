"""Apps by their names: "module:attribute", or the path of a file; and the servers that a command line names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pinlater_workers.app.app import App
from pinlater_workers.app.settings import WorkerSettings, read_file
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.imports import add_import_paths, import_object

FILE = "file:"

_SERVERS = "PINLATER_WORKER_SERVERS"
_CLUSTER = "PINLATER_WORKER_CLUSTER"
_TOKEN_FILE = "PINLATER_WORKER_TOKEN_FILE"


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


def pass_on_servers(app: App, servers: Sequence[str], cluster: str | None, token_file: str | None = None) -> None:
    """This app, and those of the processes that are started from here on, use these; what is not given stays."""
    path = os.path.abspath(token_file) if token_file else ""
    for variable, value in ((_SERVERS, ",".join(servers)), (_CLUSTER, cluster or ""), (_TOKEN_FILE, path)):
        os.environ[variable] = value
    use_inherited_servers(app)


def use_inherited_servers(app: App) -> None:
    """In a process of the pool: use what was handed down, if anything was."""
    servers, cluster, path = (os.environ.get(each, "") for each in (_SERVERS, _CLUSTER, _TOKEN_FILE))
    if servers or cluster or path:
        token = Path(path) if path else None
        app.use(servers=servers.split(",") if servers else (), cluster=cluster or None, token=token)


@dataclass(frozen=True, slots=True)
class LoadedApp:
    """`spec`: what a process of the pool loads the same app by. `settings`: what a file says, else the defaults."""

    app: App
    spec: str
    settings: WorkerSettings


def load(app_spec: str | None, config: str | None) -> LoadedApp:
    """With the current folder on the import path. ConfigurationError says what to do."""
    if (app_spec is None) == (config is None):
        said = (
            "both --app and --config are given; a file names an app" if app_spec else "no app: give --app MODULE:NAME"
        )
        other = 'as in app = "shop.jobs:app"' if app_spec else "or --config FILE (pinlater-worker --help has examples)"
        raise ConfigurationError(f"{said}, {other}")
    add_import_paths([Path.cwd()])
    if config is not None:
        app, settings = load_file(config)
        return LoadedApp(app, f"{FILE}{Path(config).absolute()}", settings)
    assert app_spec is not None
    app = load_app(app_spec)
    return LoadedApp(app, app_spec, app.worker_settings)
