"""The app and the settings that a command line names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pinlater_workers.app import App
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.importing import add_import_paths
from pinlater_workers.loading import FILE, load_app, load_file
from pinlater_workers.worker_settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class Loaded:
    """`spec`: what a process of the pool loads the same app by. `settings`: what a file says, else the defaults."""

    app: App
    spec: str
    settings: WorkerSettings


def load(app_spec: str | None, config: str | None) -> Loaded:
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
        return Loaded(app, f"{FILE}{Path(config).absolute()}", settings)
    assert app_spec is not None
    app = load_app(app_spec)
    return Loaded(app, app_spec, app.worker_settings)
