"""What a file says of an app and of its worker, in TOML; conf/jobs.toml shows all of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinlater_workers.errors import ConfigurationError
from pinlater_workers.settings_table import Key, read_table, text
from pinlater_workers.worker_settings import WorkerSettings, worker_settings


@dataclass(frozen=True, slots=True)
class FileSettings:
    """`app`: the "module:name" of an app that code makes, "": none. `import_paths` and `clusters_file` are paths from
    here. `jobs`: the keys of each table [jobs.NAME], checked when the job's type is known.
    """

    path: Path = Path()
    app: str = ""
    servers: list[str] = field(default_factory=list)
    cluster: str | None = None
    clusters_file: Path | None = None
    source: str | None = None
    import_paths: list[Path] = field(default_factory=list)
    jobs: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    worker: Mapping[str, object] = field(default_factory=dict)

    def where(self, table: str) -> str:
        """For messages."""
        return f"{self.path} [{table}]"

    def worker_settings(self) -> WorkerSettings:
        return worker_settings(self.worker, self.where("worker"))


def _texts(value: Any) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise TypeError
    return found


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return value


def _tables(value: Any) -> dict[str, Any]:
    return {name: _table(each) for name, each in _table(value).items()}


KEYS: dict[str, Key] = {
    "app": text("app", "MODULE:NAME of an app"),
    "servers": Key("servers", _texts, 'a list of HOST:PORT, as in ["queue-1:9010", "queue-2:9010"]'),
    "cluster": text("cluster", "the name of a cluster", bool),
    "clusters_file": text("clusters_file", "a path", bool),
    "source": text("source", "a text", bool),
    "import_paths": Key("import_paths", _texts, "a list of folders"),
    "jobs": Key("jobs", _tables, "tables [jobs.NAME]"),
    "worker": Key("worker", _table, "a table [worker]"),
}


def read_file(path: str | Path) -> FileSettings:
    """ConfigurationError: it cannot be read, or says what cannot be. Paths in it begin at its own folder."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from error
    fields = read_table(KEYS, found, str(path))
    folder = path.absolute().parent
    if "clusters_file" in fields:
        fields["clusters_file"] = folder / fields["clusters_file"]
    fields["import_paths"] = [(folder / each).resolve() for each in fields.get("import_paths", [])]
    if fields.get("servers") and fields.get("cluster"):
        raise ConfigurationError(f"{path}: it names servers and a cluster; allowed: one of the two")
    settings = FileSettings(path=path, **fields)
    settings.worker_settings()
    return settings
