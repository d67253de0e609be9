"""The settings of a server, each a row of one table. The flag, the key in the file, the environment variable, the check
of a value, `--help`, `--print-config` and docs/configuration.md all come from here.

A field `claim_timeout_ms` is the flag `--claim-timeout`, the key `claim-timeout` and PINLATER_CLAIM_TIMEOUT: units in
the names of the code are units in the values that people write.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pinlater.config.body_rules import BodyRules, TierUrls
from pinlater.config.stores import ALLOWED_ID, SHARD_ID, StoreConfig
from pinlater.config.values import PasswordHash, PathText, UrlPrefix
from pinlater.config.webhook_urls import WebhookUrls
from pinlater.durations import DAY_MS
from pinlater.setting_kinds import Choice, Duration, Integer, Kind, Size, Text, Words

ENVIRONMENT_PREFIX = "PINLATER_"
_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_UNITS = ("_ms", "_bytes")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    field: str
    kind: Kind
    default: Any
    section: str
    help: str
    is_secret: bool = False
    """It is a secret, or has one."""

    @property
    def name(self) -> str:
        """As people write it: the flag without its dashes, the key of the file."""
        text = self.field
        for unit in _UNITS:
            text = text.removesuffix(unit)
        return text.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return ENVIRONMENT_PREFIX + self.name.replace("-", "_").upper()


def _row(section: str, kind: Kind, default: Any, text: str, *, is_secret: bool = False) -> Any:
    return field(default=default, metadata={"section": section, "kind": kind, "help": text, "is_secret": is_secret})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of one server, checked. `stores` is never empty, and `processes` never None, once it was loaded."""

    host: str = _row("Serving", Text(r"[^\s/]+", "a host name or an address"), "127.0.0.1", "The address to listen on.")
    port: int = _row(
        "Serving", Integer(0, 65535), 9010, "The port to listen on; 0 takes a free one and prints HOST:PORT."
    )
    processes: int | None = _row(
        "Serving",
        Integer(1, 256, auto=True),
        None,
        "Worker processes; auto is 1 with an SQLite store, else one per core.",
    )
    drain_timeout_ms: int = _row(
        "Serving", Duration(0, 600_000), 10_000, "How long a stopping process may take to answer what it has read."
    )
    drain_linger_ms: int = _row(
        "Serving", Duration(0, 60_000), 500, "How long a stopping process keeps idle connections, to refuse late calls."
    )
    data: str = _row(
        "Serving",
        PathText(),
        "pinlater-data",
        "The data folder: the embedded store, the record of which store each shard is, and the admin password where "
        "the server has made one.",
    )

    tls_cert: str = _row(
        "TLS",
        PathText(or_nothing=True),
        "",
        "PEM file with the server's certificate and its chain; with it, the port speaks TLS.",
    )
    tls_key: str = _row(
        "TLS", PathText(or_nothing=True), "", "PEM file with its private key, which other users may not read."
    )
    tls: str = _row(
        "TLS",
        Choice("required", "optional"),
        "required",
        "optional: callers without TLS are served on the same port too, as while a fleet moves over.",
    )
    tls_client_ca: str = _row(
        "TLS",
        PathText(or_nothing=True),
        "",
        "PEM file with the authorities that sign callers' certificates: callers need one then.",
    )
    tls_ca: str = _row(
        "TLS",
        PathText(or_nothing=True),
        "",
        "PEM file with the authorities that sign certificates of the cluster's other servers; none: this machine's.",
    )
    tls_peers: tuple[str, ...] = _row(
        "TLS",
        Words(r"[!-~]+", "names, in which * stands for any characters"),
        (),
        "Names in the certificates of the cluster's other servers, where they share none with this one's.",
    )

    stores: tuple[StoreConfig, ...] = field(default=())
    dequeue_only: tuple[str, ...] = _row(
        "Stores",
        Words(SHARD_ID, f"shard ids, each {ALLOWED_ID}"),
        (),
        "The shard ID takes no new jobs, and is emptied by its workers.",
    )
    clock_tolerance_ms: int = _row(
        "Stores",
        Duration(10, 3_600_000),
        1000,
        "How far clocks may differ; beyond it the server logs a warning, and uses the time of most clocks.",
    )
    call_timeout_ms: int = _row("Stores", Duration(100, 600_000), 10_000, "How long one call to a store may take.")
    max_calls: int = _row("Stores", Integer(1, 1024), 16, "Calls under way at one store, per process.")
    max_waiting_calls: int = _row(
        "Stores",
        Integer(0, 1_000_000),
        1000,
        "Calls that wait for their turn at one store, per process; one more is refused.",
    )

    health_window: int = _row(
        "Stores", Integer(4, 10_000), 100, "The number of last calls to a store that decide whether it is healthy."
    )
    health_min_good: int = _row(
        "Stores", Integer(1, 10_000), 75, "With fewer good calls among those, the shard is ejected for a while."
    )
    health_pause_ms: int = _row(
        "Stores",
        Duration(100, 3_600_000),
        60_000,
        "The longest pause before an ejected shard is tried again. The pause is a second at first, and while no other "
        "shard is left; it doubles with each try that fails.",
    )
    overflow_bytes: int = _row(
        "Stores",
        Size(0, 1024 * _GIB),
        0,
        "The overflow shard: jobs that no shard takes are stored in the data folder, up to this size. Only for a "
        "folder that outlives the process; 0: such jobs are refused.",
    )

    lease_ms: int = _row(
        "Cluster",
        Duration(1000, 600_000),
        5000,
        "A server that does not renew its lease in this time counts as gone, and others take over its maintenance.",
    )
    advertise: str = _row(
        "Cluster",
        Text(r"[^\s/]*", "HOST:PORT, or nothing for the address that is listened on"),
        "",
        "Where other servers of the cluster reach this one.",
    )
    queue_file: str = _row(
        "Cluster",
        Text(r"[^\0]*", "a path, or nothing"),
        "",
        "A TOML file with settings of queues, read again when it changes; what a command has set takes precedence.",
    )
    stats_interval_ms: int = _row(
        "Cluster", Duration(500, 3_600_000), 2000, "How often the jobs of all queues are counted, at most."
    )
    blocked_chain_jobs: int = _row(
        "Cluster",
        Integer(1, 2**31 - 1),
        1000,
        "A job that keeps this many others of its serialize key waiting is shown, and counted as a blocked chain.",
    )
    blocked_chain_age_ms: int = _row(
        "Cluster",
        Duration(1000, 3650 * DAY_MS),
        3_600_000,
        "A job that keeps others waiting for this time is shown and counted too.",
    )

    rules: str = _row(
        "Access",
        Text(r"[^\0]*", "a path, or nothing"),
        "",
        "A TOML file with who may do what, read again when it changes. Without one everybody may do all that needs no "
        "admin password.",
    )

    max_identity_connections: int = _row(
        "Access",
        Integer(0, 1_000_000),
        0,
        "Connections of one identity (a certificate, a token, or an address without), per process, where access is "
        "limited; 0: no bound but those of addresses.",
    )
    max_identity_calls: int = _row(
        "Access",
        Integer(0, 1_000_000),
        1_000,
        "Calls of one identity that are carried out at a time, per process; 0: no bound. Those that wait count as "
        "none.",
    )
    max_identity_buffered_bytes: int = _row(
        "Access",
        Size(0, 1024 * _GIB),
        64 * _MIB,
        "Bytes of such calls of one identity, per process; 0: no bound.",
    )
    identity_calls_per_second: int = _row(
        "Access",
        Integer(0, 1_000_000),
        0,
        "Calls that one identity may send in a second, per process; 0: no bound. A role may have its own.",
    )
    max_identity_flows: int = _row(
        "Access",
        Integer(0, 2**53),
        100_000,
        "Flows that one identity may have, with ended ones that are still kept, where access is limited; 0: no "
        "bound. A role may have its own bound for this and the next four settings.",
    )
    max_identity_flow_items: int = _row(
        "Access", Integer(0, 2**53), 10_000_000, "Items of all flows of one identity; 0: no bound."
    )
    max_identity_queues: int = _row(
        "Access", Integer(0, 2**53), 10_000, "Queues that one identity may have made; 0: no bound."
    )
    max_identity_schedules: int = _row(
        "Access", Integer(0, 2**53), 10_000, "Schedules that one identity may have made; 0: no bound."
    )
    max_identity_tokens: int = _row(
        "Access", Integer(0, 2**53), 5_000, "Tokens that one identity may have made; 0: no bound."
    )

    http: str = _row(
        "Metrics",
        Text(r"[^\s/]+:[0-9]{1,5}|none", "HOST:PORT (port 0 takes a free one), or none"),
        "127.0.0.1:9011",
        "Where the status page, /metrics, /livez and /readyz are served.",
    )
    http_names: tuple[str, ...] = _row(
        "Metrics",
        Words(r"\*|[A-Za-z0-9._-]{1,253}", "a host name, or * for any"),
        (),
        "A name under which browsers are shown the status page, beside addresses, localhost, the machine's own name "
        "and those in host, http, api and advertise; the HTTP interface answers under no other. Other paths beside the "
        "status page are served under every name.",
    )
    api: str = _row(
        "HTTP",
        Text(r"[^\s/]+:[0-9]{1,5}|none|auto", "HOST:PORT (port 0 takes a free one), none, or auto"),
        "auto",
        "Where the HTTP interface is served, in a process of its own; auto is 127.0.0.1:9012 where all jobs are kept "
        "in SQLite and host is a loopback address, else none.",
    )
    api_prefix: str = _row(
        "HTTP",
        UrlPrefix(),
        "",
        "The path of a reverse proxy below which browsers and programs find the HTTP interface, as /queue for "
        "https://intern.example/queue/. Requests are served with it and without it.",
    )
    history: str = _row(
        "HTTP",
        Text(r"[^\0]+", "a path, none, or auto"),
        "auto",
        "Where the HTTP process keeps the history of queues that the dashboard shows, in 64MiB at most; auto is "
        "history.sqlite in the data folder of a server, and in memory for `pinlater api`; none is in memory.",
    )
    flows: str = _row(
        "Flows",
        Text(
            r"sqlite|none|(sqlite|postgresql\+psycopg|mysql\+pymysql|mysql\+mysqldb)://\S+",
            "sqlite, none, or a URL: postgresql+psycopg://..., mysql+pymysql://..., sqlite:///PATH",
        ),
        "sqlite",
        "The database of flows, the same for all servers of a cluster; sqlite is a file in the data folder, for one "
        "server alone.",
        is_secret=True,
    )
    flow_callback_hosts: tuple[str, ...] = _row(
        "Flows",
        Words(r"[^\s/]+", "HOST, HOST:PORT or HOST:*, in which * stands for any characters"),
        (),
        "An address to which the completion of a flow may be POSTed; without a port it is 80 and 443. Without an "
        "address no callback may name a URL.",
    )
    flow_callback_secret: str = _row(
        "Flows",
        Text(r"(\S{16,500})?", "16 to 500 characters without spaces"),
        "",
        "The secret that signs these POSTs.",
        is_secret=True,
    )

    alarm_webhook: tuple[str, ...] = _row(
        "Alarms",
        WebhookUrls(),
        (),
        "A receiver that is sent each alarm and its end, the same for all servers of a cluster. See docs/alarms.md.",
        is_secret=True,
    )
    alarm_webhook_secret: str = _row(
        "Alarms",
        Text(r"(\S{16,500})?", "16 to 500 characters without spaces"),
        "",
        "The secret that signs these POSTs.",
        is_secret=True,
    )
    alarm_webhook_errors: str = _row(
        "Alarms",
        Choice("hidden", "shown"),
        "hidden",
        "Whether these POSTs have the errors of jobs, which may quote bodies.",
    )
    alarm_links: str = _row(
        "Alarms",
        Text(r"(https?://\S+[^/\s])?", "http://HOST:PORT or https://HOST"),
        "",
        "Where people reach the dashboard, for the links of webhooks.",
    )

    bodies: tuple[str, ...] = _row(
        "Bodies",
        TierUrls(),
        (),
        "A tier, in which large and long-delayed bodies lie outside the shards; the same for all servers of a cluster. "
        "The first is the one that rules mean where none are given.",
        is_secret=True,
    )
    body_rules: tuple[str, ...] = _row(
        "Bodies",
        BodyRules(),
        (),
        "Which bodies go to which tier; the first that applies counts. Without one the first tier takes what is larger "
        "than 256KiB, and what is larger than 4KiB and delayed by more than 10m.",
    )
    body_in_shard_bytes: int = _row(
        "Bodies",
        Size(0, 512 * _MIB),
        _MIB,
        "The largest body that stays in its shard where its tier cannot take it; a larger one is refused then.",
    )
    body_put_ms: int = _row("Bodies", Duration(10, 600_000), 2000, "How long a tier may take to store a body.")
    body_get_ms: int = _row("Bodies", Duration(10, 600_000), 3000, "How long a tier may take to give a body.")
    body_tries: int = _row(
        "Bodies",
        Integer(1, 1_000_000),
        20,
        "A job whose body could not be read this many times, while its tier gave others, fails as BODY_UNAVAILABLE.",
    )
    body_ahead_ms: int = _row(
        "Bodies",
        Duration(0, 600_000),
        2000,
        "Bodies of jobs that are due within this time are fetched ahead; 0s: none.",
    )
    body_cache_bytes: int = _row(
        "Bodies", Size(0, 64 * _GIB), 64 * _MIB, "Bytes of bodies that were fetched ahead, per process."
    )
    body_orphan_age_ms: int = _row(
        "Bodies",
        Duration(1000, 3650 * DAY_MS),
        DAY_MS,
        "The age at which an object that no job refers to is swept. It must be longer than a job takes to be stored "
        "after its object, or the sweep deletes bodies of jobs.",
    )

    statsd: str = _row(
        "Statsd", Text(r"([^\s/]+:[0-9]{1,5})?", "HOST:PORT, or nothing"), "", "The statsd that gets all metrics."
    )
    statsd_prefix: str = _row(
        "Statsd",
        Text(r"[A-Za-z0-9_.-]*", "letters, digits, dots, dashes"),
        "pinlater",
        "The prefix of each statsd name.",
    )

    priorities: int = _row("Jobs", Integer(1, 10), 3, "Levels of priority; 1 is the highest.")
    claim_timeout_ms: int = _row(
        "Jobs",
        Duration(1000, 30 * DAY_MS),
        300_000,
        "The claim time-out: a claim that is not renewed in this time expires.",
    )
    max_claim_timeout_ms: int = _row(
        "Jobs",
        Duration(1000, 30 * DAY_MS),
        DAY_MS,
        "The longest time-out that a caller may ask for a claim, and how far ahead a checkpoint may keep one.",
    )
    release_grace_ms: int = _row(
        "Jobs",
        Duration(0, 600_000),
        2000,
        "How long a claim that is bound to its connection (releaseOnDisconnect) may still be renewed after the "
        "connection broke; then it expires.",
    )
    crash_budget: int = _row(
        "Jobs",
        Integer(0, 1_000_000),
        3,
        "A job whose workers were lost this many times fails, whatever attempts remain; 0: no such bound.",
    )
    succeeded_ttl_ms: int = _row("Jobs", Duration(0, 3650 * DAY_MS), DAY_MS, "How long jobs that succeeded are kept.")
    failed_ttl_ms: int = _row("Jobs", Duration(0, 3650 * DAY_MS), 7 * DAY_MS, "How long jobs that failed are kept.")
    maintenance_interval_ms: int = _row(
        "Jobs", Duration(100, 3_600_000), 1000, "How often maintenance runs: claims expire, jobs are pruned."
    )
    admin_password_hash: str = _row(
        "Jobs",
        PasswordHash(),
        "",
        "The salted hash of the password for deleting queues and changing settings. Without one a server that is on a "
        "loopback address and keeps all jobs in SQLite makes a password in its data folder; others refuse these.",
        is_secret=True,
    )

    max_frame_bytes: int = _row(
        "Limits", Size(64 * _KIB, _GIB), 16 * _MIB, "The largest message in a frame, of a request or an answer."
    )
    max_unframed_bytes: int = _row("Limits", Size(1024, 64 * _MIB), _MIB, "The largest message without a frame.")
    max_body_bytes: int = _row("Limits", Size(1, 512 * _MIB), _MIB, "The largest body of a job.")
    max_jobs: int = _row("Limits", Integer(1, 60_000), 10_000, "Jobs in one request.")
    max_connections: int = _row("Limits", Integer(1, 1_000_000), 5_000, "Connections, per process.")
    max_peer_connections: int | None = _row(
        "Limits",
        Integer(1, 1_000_000, auto=True),
        None,
        "Connections of one address, per process; then its own longest idle connection is closed. auto is half of "
        "max-connections; more where many callers stand behind one address.",
    )
    max_http_connections: int = _row(
        "Limits",
        Integer(4, 10_000),
        100,
        "Connections to the status page and /metrics; beyond it the oldest is closed.",
    )
    max_frames_in_flight: int = _row(
        "Limits",
        Integer(1, 100_000),
        16,
        "Requests of one connection that are carried out at a time; further ones wait.",
    )
    max_buffered_bytes: int = _row(
        "Limits",
        Size(_MIB, 1024 * _GIB),
        256 * _MIB,
        "Bytes of messages a process keeps for callers, half-sent ones among them; "
        "as much again is kept of answers that cannot leave yet.",
    )
    max_connection_answers_bytes: int = _row(
        "Limits",
        Size(_MIB, 1024 * _GIB),
        32 * _MIB,
        "Bytes of answers that one connection has not taken; a call that may bring many waits until there is room.",
    )
    max_peer_answers_bytes: int = _row(
        "Limits",
        Size(_MIB, 1024 * _GIB),
        64 * _MIB,
        "The same over all connections of one address, per process; more where many callers stand behind one.",
    )
    max_container: int = _row("Limits", Integer(100, 10_000_000), 65_536, "Elements of one list or map of a message.")
    max_steps: int = _row(
        "Limits", Integer(1000, 100_000_000), 100_000, "Fields and elements of a large message in all."
    )
    max_wait_ms: int = _row(
        "Limits", Duration(0, 600_000), 60_000, "The longest a dequeue may wait for jobs (waitMillis)."
    )
    max_waiters: int = _row(
        "Limits",
        Integer(1, 1_000_000),
        10_000,
        "Dequeues that may wait for jobs, and lookups that may wait for ends, per process; one more is refused.",
    )
    long_call_timeout_ms: int = _row(
        "Limits",
        Duration(100, 600_000),
        5000,
        "The time after which a call over many jobs (patterns, retry, delete) ends, with how to go on.",
    )
    idle_timeout_ms: int = _row(
        "Limits",
        Duration(100, 30 * DAY_MS),
        3_600_000,
        "A connection that carries nothing for this time is closed.",
    )
    half_sent_timeout_ms: int = _row(
        "Limits",
        Duration(100, 3_600_000),
        30_000,
        "A message that is not complete after this time closes its connection.",
    )
    write_timeout_ms: int = _row(
        "Limits", Duration(100, 3_600_000), 30_000, "A caller that does not take its answers for this time is cut off."
    )

    log_level: str = _row("Logs", Choice("debug", "info", "warning", "error"), "info", "The least that is logged.")
    log_format: str = _row(
        "Logs", Choice("auto", "human", "json"), "auto", "auto: for people on a terminal, JSON lines elsewhere."
    )


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(each.name, default=each.default, **each.metadata) for each in fields(Config) if each.metadata
)
"""The rows, in the order of `--help`. The stores are no row: they have a form of their own (`config.stores`)."""

BY_NAME = {setting.name: setting for setting in SETTINGS}
STORE_NAME = "store"
CONFIG_NAME = "config"
SECRET_NAMES = (STORE_NAME, *(setting.name for setting in SETTINGS if setting.is_secret))
FILE_SETTINGS = {f"{name}-file": name for name in SECRET_NAMES}
"""What names a file with the value of a setting, and that setting."""

NAMES = (*BY_NAME, STORE_NAME, CONFIG_NAME, *FILE_SETTINGS)


def to_plain(config: Config) -> dict[str, Any]:
    """The configuration as JSON can carry it to a server process."""
    return asdict(config)


def from_plain(plain: dict[str, Any]) -> Config:
    """What `to_plain` made."""
    stores = tuple(StoreConfig(**each) for each in plain["stores"])
    values: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in plain.items()}
    return Config(**{**values, "stores": stores})


@dataclass(frozen=True, slots=True)
class ConfigDiff:
    """The difference between two configurations: shard ids, and names of settings."""

    shards_added: list[str]
    shards_removed: list[str]
    shards_moved: list[str]
    """With another address."""
    dequeue_only: list[str]
    takes_jobs_again: list[str]
    settings: list[str]

    def facts(self) -> dict[str, list[str]]:
        """Those there are, by name."""
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name)}


def config_diff(before: Config, after: Config) -> ConfigDiff:
    """Both with the ids that their stores turned out to have."""
    old, new = _by_id(before), _by_id(after)
    both = sorted(old.keys() & new.keys())
    return ConfigDiff(
        shards_added=sorted(new.keys() - old.keys()),
        shards_removed=sorted(old.keys() - new.keys()),
        shards_moved=[each for each in both if old[each].url != new[each].url],
        dequeue_only=[each for each in both if new[each].dequeue_only and not old[each].dequeue_only],
        takes_jobs_again=[each for each in both if old[each].dequeue_only and not new[each].dequeue_only],
        settings=[
            setting.name
            for setting in SETTINGS
            if setting.field != "dequeue_only" and getattr(before, setting.field) != getattr(after, setting.field)
        ],
    )


def _by_id(config: Config) -> dict[str, StoreConfig]:
    return {store.id: store for store in config.stores if store.id}
