"""The settings of a worker, and the TOML file that has them beside those of an app; conf/jobs.toml shows all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pinlater.client.client_tls import Tls
from pinlater.model import MAX_QUEUES, is_queue_name
from pinlater.setting_kinds import Choice, Flag, Text
from pinlater.written import toml_of
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs.settings import POOLS, QUEUE_NAME, PoolName
from pinlater_workers.settings_table import DAY_S, Key, duration, integer, key, read_table

MAX_WEIGHT = 1000
MAX_NAME_CHARS = 100
ALLOWED_QUEUES = f"names of queues ({QUEUE_NAME}), each with a weight of 1 to {MAX_WEIGHT}, as in mail=3,b"
MAX_CONCURRENCY = 10_000
LONGEST_POLL_S = 20.0
POLLS_PER_LEASE = 3


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a worker. `queues`: their weights. Times are seconds.

    `lease_s`: how long a claim holds without a heartbeat. `poll_wait_s`: how long a server may hold back its answer; it
    counts up to a third of the lease (None: that, or LONGEST_POLL_S). `prefetch_s`: how long a claimed job may wait
    here for a slot, before it is handed back; 0: none waits. `grace_s`: how long running jobs may go on after
    SIGTERM. `cancel_grace_s`: how long a cancelled job may take to stop, before its process is killed, or its
    coroutine left behind.
    `recycle_jobs`, `recycle_mib`: after so many jobs, or above so much memory, a process of the pool is replaced; 0:
    never. `unknown_delay_s`: how long a job of an unknown type stays away at first; `unknown_limit_s`: after so long it
    fails, infinite: never. `http` and `statsd`: HOST:PORT, "": none.
    `name`: that in the list of workers; "": as the app's module or file.
    """

    queues: Mapping[str, int] = field(default_factory=dict)
    concurrency: int = 8
    pool: PoolName = "thread"
    lease_s: float = 30.0
    grace_s: float = 30.0
    cancel_grace_s: float = 10.0
    poll_wait_s: float | None = None
    ack_delay_s: float = 0.05
    prefetch_s: float = 0.05
    recycle_jobs: int = 0
    recycle_mib: int = 0
    unknown_delay_s: float = 10.0
    unknown_limit_s: float = DAY_S
    http: str = ""
    statsd: str = ""
    statsd_prefix: str = "pinlater_worker"
    create_queues: bool = False
    apply_schedules: bool = False
    name: str = ""

    @property
    def poll_s(self) -> float:
        """How long a dequeue waits at most: so fewer jobs go to callers that a stalled network has cut off."""
        wait_s = LONGEST_POLL_S if self.poll_wait_s is None else self.poll_wait_s
        return min(wait_s, self.lease_s / POLLS_PER_LEASE)

    @property
    def polls_too_long(self) -> bool:
        """It was told to wait for longer than it does."""
        return self.poll_wait_s is not None and self.poll_wait_s > self.lease_s / POLLS_PER_LEASE


def queue_weights(value: object) -> dict[str, int]:
    """Of a table {a = 3, b = 1}, a list ["a", "b"], or a text "a=3,b". ValueError or TypeError.

    >>> queue_weights("mail=3, reports")
    {'mail': 3, 'reports': 1}
    """
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
        if not value:
            raise ValueError("it names no queue; left out, it means all of the app's jobs")
    if isinstance(value, Mapping):
        return _not_too_many({name: _weight(weight, name) for name, weight in value.items()})
    if not isinstance(value, list | tuple):
        raise TypeError
    weights: dict[str, int] = {}
    for part in value:
        if not isinstance(part, str):
            raise TypeError(f"{part!r} is no name of a queue")
        name, equals, text = (each.strip() for each in part.partition("="))
        if name in weights:
            raise ValueError(f"queue {name!r} stands there twice")
        weight = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text
        weights[name] = _weight(weight if equals else 1, name)
    return _not_too_many(weights)


def _not_too_many(weights: dict[str, int]) -> dict[str, int]:
    """One dequeue asks all of them."""
    if len(weights) > MAX_QUEUES:
        raise ValueError(f"{len(weights)} queues; one worker takes from {MAX_QUEUES} at most: use several workers")
    return weights


def _weight(weight: object, name: str) -> int:
    if not is_queue_name(name):
        raise ValueError(f"no queue can have the name {name!r}")
    if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= MAX_WEIGHT:
        raise ValueError(f"queue {name!r} has weight {weight!r}")
    return weight


def _is_host_port(value: str) -> bool:
    host, colon, port = value.rpartition(":")
    return value == "" or (bool(host and colon) and port.isdecimal() and int(port) <= 65535)


_NAME = Text(rf"(?s:.{{1,{MAX_NAME_CHARS}}})", f"1 to {MAX_NAME_CHARS} characters")
_HOST_PORT = Text(_is_host_port, "HOST:PORT, or nothing")
WORKER_KEYS: dict[str, Key] = {
    "queues": Key("queues", queue_weights, ALLOWED_QUEUES),
    "concurrency": integer("concurrency", 1, MAX_CONCURRENCY),
    "pool": key("pool", Choice(*POOLS)),
    "lease": duration("lease_s", 3.0, DAY_S),
    "grace": duration("grace_s", 0.0, DAY_S),
    "cancel_grace": duration("cancel_grace_s", 0.0, DAY_S),
    "poll_wait": duration("poll_wait_s", 0.0, 60.0),
    "ack_delay": duration("ack_delay_s", 0.0, 1.0),
    "prefetch": duration("prefetch_s", 0.0, 1.0),
    "recycle_jobs": integer("recycle_jobs", 0),
    "recycle_mib": integer("recycle_mib", 0),
    "unknown_delay": duration("unknown_delay_s", 0.0, DAY_S),
    "unknown_limit": duration("unknown_limit_s", 1.0, 365 * DAY_S, never=float("inf")),
    "http": key("http", _HOST_PORT),
    "statsd": key("statsd", _HOST_PORT),
    "statsd_prefix": key("statsd_prefix", Text()),
    "create_queues": key("create_queues", Flag()),
    "apply_schedules": key("apply_schedules", Flag()),
    "name": key("name", _NAME),
}


def worker_settings(options: Mapping[str, object], where: str, base: WorkerSettings | None = None) -> WorkerSettings:
    """The settings that these keys say, on top of others. ConfigurationError."""
    return replace(base or WorkerSettings(), **read_table(WORKER_KEYS, options, where))


@dataclass(frozen=True, slots=True)
class FileSettings:
    """`app`: the "module:name" of an app that code makes, "": none. `import_paths`, `clusters_file` and `token_file`
    are paths from here. `include`: modules that declare jobs. `jobs`: the keys of each table [jobs.NAME], checked when
    the job's type is known.
    """

    path: Path = Path()
    app: str = ""
    servers: list[str] = field(default_factory=list)
    cluster: str | None = None
    clusters_file: Path | None = None
    source: str | None = None
    tls: Tls | None = None
    token_file: Path | None = None
    version: str = ""
    import_paths: list[Path] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
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


def _tls(value: Any) -> Tls:
    return Tls() if value is True else Tls.from_mapping(_table(value), "tls")


FILE_KEYS: dict[str, Key] = {
    "app": key("app", Text(allowed="MODULE:NAME of an app")),
    "servers": Key("servers", _texts, 'a list of HOST:PORT, as in ["queue-1:9010", "queue-2:9010"]'),
    "cluster": key("cluster", Text(bool, "the name of a cluster")),
    "clusters_file": key("clusters_file", Text(bool, "a path")),
    "source": key("source", Text(bool)),
    "tls": Key("tls", _tls, "true, or a table with ca, cert, key and server_name"),
    "token_file": key("token_file", Text(bool, "the path of a file that has the token in its first line")),
    "version": key("version", _NAME),
    "import_paths": Key("import_paths", _texts, "a list of folders"),
    "include": Key("include", _texts, 'a list of modules, as in ["shop.jobs", "shop.reports.*"]'),
    "jobs": Key("jobs", _tables, "tables [jobs.NAME]"),
    "worker": Key("worker", _table, "a table [worker]"),
}


def read_file(path: str | Path) -> FileSettings:
    """ConfigurationError: it cannot be read, or says what cannot be. Paths in it begin at its own folder."""
    path = Path(path)
    try:
        found = toml_of(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from error
    fields = read_table(FILE_KEYS, found, str(path))
    folder = path.absolute().parent
    if "tls" in fields:
        fields["tls"] = fields["tls"].within(folder)
    for name in ("clusters_file", "token_file"):
        if name in fields:
            fields[name] = folder / Path(fields[name]).expanduser()
    fields["import_paths"] = [(folder / each).resolve() for each in fields.get("import_paths", [])]
    if fields.get("servers") and fields.get("cluster"):
        raise ConfigurationError(f"{path}: it names servers and a cluster; allowed: one of the two")
    settings = FileSettings(path=path, **fields)
    settings.worker_settings()
    return settings
