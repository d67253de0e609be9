"""Apps by their names: "module:attribute", or the path of a file; and the servers that a command line names."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pinlater.client.client_tls import Tls
from pinlater_workers.app.app import App
from pinlater_workers.app.settings import WorkerSettings, read_file
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.imports import add_import_paths, import_object

FILE = "file:"

_SERVER_FLAGS = "PINLATER_WORKER_SERVERS"


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


class ServerFlags(NamedTuple):
    """What a command line says of the servers, over what the app says. `tls`: by the fields of Tls."""

    servers: Sequence[str] = ()
    cluster: str | None = None
    token_file: str | None = None
    tls: Mapping[str, str | None] = {}

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> ServerFlags:
        """Takes them out of the options of a command."""
        servers, cluster = options.pop("servers"), options.pop("cluster")
        return cls(servers, cluster, options.pop("token_file"), Tls.flags_in(options))

    def over(self, other: ServerFlags) -> ServerFlags:
        """With those of another command line where this one says nothing."""
        tls = {name: value or other.tls.get(name) for name, value in self.tls.items()}
        return ServerFlags(
            self.servers or other.servers, self.cluster or other.cluster, self.token_file or other.token_file, tls
        )

    def apply_to(self, app: App) -> None:
        """The app uses these; what is not given stays. ConfigurationError."""
        if self.servers or self.cluster or self.token_file:
            token = Path(self.token_file) if self.token_file else None
            app.use(servers=self.servers, cluster=self.cluster, token=token)
        if any(self.tls.values()):
            try:
                app.use(tls=(app.tls or Tls()).over(**self.tls))
            except ValueError as error:
                raise ConfigurationError(str(error)) from error


def pass_on_servers(app: App, flags: ServerFlags) -> None:
    """This app, and those of the processes that are started from here on, use these; what is not given stays."""
    tls = {
        name: value if name == "server_name" else os.path.abspath(value) for name, value in flags.tls.items() if value
    }
    token_file = os.path.abspath(flags.token_file) if flags.token_file else None
    flags = flags._replace(token_file=token_file, tls=tls)
    if any(flags):
        os.environ[_SERVER_FLAGS] = json.dumps(flags)
        flags.apply_to(app)


def use_inherited_servers(app: App) -> None:
    """In a process of the pool: use what was handed down, if anything was."""
    handed_down = os.environ.get(_SERVER_FLAGS)
    if handed_down:
        ServerFlags(*json.loads(handed_down)).apply_to(app)


@dataclass(frozen=True, slots=True)
class LoadedApp:
    """`spec`: what a process of the pool loads the same app by. `settings`: what a file says, else the defaults."""

    app: App
    spec: str
    settings: WorkerSettings


def load(app_spec: str | None, config: str | None) -> LoadedApp:
    """With the current folder on the import path. ConfigurationError says what to do."""
    if (app_spec is None) == (config is None):
        problem = (
            "both --app and --config are given; a file names an app" if app_spec else "no app: give --app MODULE:NAME"
        )
        other = 'as in app = "shop.jobs:app"' if app_spec else "or --config FILE (pinlater-worker --help has examples)"
        raise ConfigurationError(f"{problem}, {other}")
    add_import_paths([Path.cwd()])
    if config is not None:
        app, settings = load_file(config)
        return LoadedApp(app, f"{FILE}{Path(config).absolute()}", settings)
    assert app_spec is not None
    app = load_app(app_spec)
    return LoadedApp(app, app_spec, app.worker_settings)
