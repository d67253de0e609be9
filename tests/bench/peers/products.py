"""The products that are compared: how each is started, by its own command, and the environment of the others."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench.peers.packages import (
    NODE_PACKAGES,
    PEERS_PYTHON,
    DebianPackage,
    GoPackage,
    KitPackage,
    NodePackage,
    OwnPackage,
    Package,
    PythonPackage,
)

_ROOT = Path(__file__).parents[3]
_BIN = Path(sys.executable).parent
TASKS = Path(__file__).with_name("graphile_tasks")
"""Where graphile-worker finds its task."""

RIVER = Path(__file__).with_name("river")
"""The program in Go."""


@dataclass(frozen=True)
class Product:
    """`packages`: what it needs, that first whose version is shown. `command`: of a worker at its own defaults, for
    these queues. `slots`: the options for a hundred slots. `drained`: so many jobs take it some seconds.

    `has_rates`: a limit per queue can be given that makes jobs wait, without a failed attempt. `prepare`: what makes
    its tables, in the store that it needs. `producer`: what is started in place of produce.py, with its options.
    `needs_http`: it calls the HTTP interface of a server of ours.
    """

    name: str
    packages: Sequence[Package]
    command: Callable[[Sequence[str]], list[str]]
    slots: tuple[str, ...] = ()
    has_many_queues: bool = True
    has_rates: bool = False
    store: str = "redis"
    prepare: tuple[str, ...] = ()
    drained: int = 6_000
    producer: tuple[str, ...] = ()
    needs_http: bool = False

    @property
    def is_ours(self) -> bool:
        return isinstance(self.packages[0], OwnPackage)

    @property
    def version(self) -> str:
        return self.packages[0].version()

    @property
    def missing(self) -> str:
        """Why it cannot be had; "": it is there. What can be installed is."""
        return next(filter(None, (package.missing() for package in self.packages)), "")

    @property
    def python(self) -> str:
        return _python(self.packages)

    @property
    def produces(self) -> Sequence[str]:
        return self.producer or (self.python, "-m", "tests.bench.peers.produce", "--product", self.name)


def _python(packages: Sequence[Package]) -> str:
    return PEERS_PYTHON if any(isinstance(package, PythonPackage) for package in packages) else sys.executable


PRODUCTS = (
    Product(
        "pinlater",
        [OwnPackage()],
        lambda queues: [str(_BIN / "pinlater-worker"), "--app", "tests.bench.peers.on_pinlater:app"],
        ("--concurrency", "100"),
        has_rates=True,
        drained=60_000,
    ),
    Product(
        "celery",
        [PythonPackage("celery")],
        lambda queues: [
            PythonPackage.program("celery"),
            *("-A", "tests.bench.peers.on_celery", "worker", "-Q", ",".join(queues)),
        ],
        ("--pool", "threads", "--concurrency", "100"),
        has_rates=True,
    ),
    Product(
        "dramatiq",
        [PythonPackage("dramatiq")],
        lambda queues: [PythonPackage.program("dramatiq"), "tests.bench.peers.on_dramatiq"],
        ("--processes", "2", "--threads", "50"),
    ),
    Product(
        "taskiq",
        [PythonPackage("taskiq")],
        lambda queues: [PythonPackage.program("taskiq"), "worker", "tests.bench.peers.on_taskiq:broker"],
        ("--workers", "2", "--max-async-tasks", "50"),
        has_many_queues=False,
    ),
)

_RIVER = GoPackage("github.com/riverqueue/river", "river")
_GRAPHILE = NodePackage.program("graphile-worker")
_PROCRASTINATE = (PythonPackage.program("procrastinate"), "--app", "tests.bench.peers.on_procrastinate.app")
ON_POSTGRES = (
    replace(PRODUCTS[0], store="postgres"),
    Product(
        "procrastinate",
        [PythonPackage("procrastinate")],
        lambda queues: [*_PROCRASTINATE, "worker"],
        ("--concurrency", "100"),
        store="postgres",
        prepare=(*_PROCRASTINATE, "schema", "--apply"),
    ),
    Product(
        "graphile",
        [NodePackage("graphile-worker"), PythonPackage("psycopg")],
        lambda queues: [_GRAPHILE],
        ("--jobs", "100"),
        store="postgres",
        prepare=(_GRAPHILE, "--schema-only"),
    ),
    Product(
        "river",
        [_RIVER, PythonPackage("psycopg")],
        lambda queues: [_RIVER.program, "work"],
        ("--slots", "100"),
        store="postgres",
        prepare=(_RIVER.program, "migrate"),
    ),
)

NATS = GoPackage("github.com/nats-io/nats-server/v2", "nats", "github.com/nats-io/nats-server/v2")
BEANSTALKD = DebianPackage("beanstalkd", "beanstalkd", ["beanstalkd", "-v"])
RABBITMQ = DebianPackage(
    "rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server", ["dpkg-query", "--show", "rabbitmq-server"]
)
_BULLMQ = ("node", str(Path(__file__).with_name("on_bullmq.mjs")))


def _plain(name: str, packages: Sequence[Package], store: str = "redis") -> Product:
    """One whose client has no workers: a program takes and confirms jobs in a loop."""
    command = [_python(packages), "-m", "tests.bench.peers.consume", "--product", name]
    return Product(name, packages, lambda queues: command, has_many_queues=False, store=store, drained=30_000)


CLIENTS = (_plain("client", [OwnPackage()]), _plain("async_client", [OwnPackage()]))
"""Our plain clients."""

BULLMQ = Product(
    "bullmq",
    [NodePackage("bullmq")],
    lambda queues: [*_BULLMQ, "work"],
    ("--slots", "100"),
    has_many_queues=False,
    drained=30_000,
    producer=(*_BULLMQ, "produce"),
)
QUEUES = (
    *CLIENTS,
    BULLMQ,
    _plain("beanstalkd", [BEANSTALKD], "beanstalkd"),
    _plain("nats", [NATS, PythonPackage("nats-py")], "nats"),
    _plain("rabbitmq", [RABBITMQ, PythonPackage("amqp")], "rabbitmq"),
)
"""Queues of other languages and queue servers, beside our plain clients: the same bodies of 200 bytes."""

_KIT_PRODUCER = (sys.executable, str(Path(__file__).with_name("produce.py")), "--product", PRODUCTS[0].name)
"""Jobs for the kits are enqueued in Python: all read one form of bodies."""


def _kit(name: str, package: Package, command: Sequence[str], slots: Sequence[str]) -> Product:
    return Product(
        name,
        [OwnPackage(), package],
        lambda queues: list(command),
        tuple(slots),
        drained=60_000,
        producer=_KIT_PRODUCER,
        needs_http=name == "node_kit",
    )


_NODE_KIT = KitPackage(
    "node",
    lambda kit: [
        ["npm", "ci", "--prefix", str(kit), "--loglevel=error", "--no-audit", "--no-fund", "--ignore-scripts"],
        ["npm", "run", "--prefix", str(kit), "build"],
    ],
)
_JAVA_PROGRAM = Path(__file__).with_name("OnKit.java")
_JAVA_KIT = KitPackage(
    "java",
    lambda kit: [
        [
            *("mvn", "--batch-mode", "--quiet", "--no-transfer-progress", "--file", str(kit / "pom.xml")),
            *("-DskipTests", "package"),
            *("dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=target/lib"),
        ],
        ["javac", "-cp", str(kit / "target" / "*"), "-d", str(kit / "target" / "bench"), str(_JAVA_PROGRAM)],
    ],
)
_JAVA_PATH = os.pathsep.join(str(_JAVA_KIT.folder / "target" / part) for part in ("*", "lib/*", "bench"))
_GO_KIT = GoPackage("github.com/apache/thrift", "kit_go")
KITS = (
    PRODUCTS[0],
    _kit("node_kit", _NODE_KIT, ["node", str(Path(__file__).with_name("on_kit.mjs"))], ["--slots", "100"]),
    _kit("go_kit", _GO_KIT, [_GO_KIT.program], ["-slots", "100"]),
    _kit("java_kit", _JAVA_KIT, ["java", "-cp", _JAVA_PATH, _JAVA_PROGRAM.stem], ["100"]),
)
"""The framework in Python, and the kits for other languages."""

_ASYNQ = GoPackage("github.com/hibiken/asynq", "asynq")
ASYNQ = Product(
    "asynq",
    [_ASYNQ],
    lambda queues: [_ASYNQ.program, "work"],
    ("-slots", "100"),
    drained=30_000,
)


def environment(
    product: Product, broker: str, queues: Sequence[str], record: Path, rates: Mapping[str, int]
) -> dict[str, str]:
    """That of a producer or a worker of a product."""
    paths = os.pathsep.join([str(_ROOT), str(_ROOT / "workers")] if product.is_ours else [str(_ROOT)])
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "BENCH_BROKER": broker,
        "DATABASE_URL": broker,
        "BENCH_QUEUES": ",".join(queues),
        "BENCH_RATES": ",".join(f"{queue}={rate}" for queue, rate in rates.items()),
        "BENCH_RECORD": str(record),
        "BENCH_SENDER": product.packages[0].program if isinstance(product.packages[0], GoPackage) else "",
        "BENCH_NODE": NODE_PACKAGES,
        "BENCH_NODE_KIT": str(_NODE_KIT.folder / "dist" / "index.js"),
    }
