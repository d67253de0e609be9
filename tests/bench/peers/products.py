"""The products that are compared: how each is started, by its own command, and the environment of the others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("celery[redis]>=5.5", "dramatiq[redis]>=2", "taskiq>=0.12", "taskiq-redis>=1.2", "procrastinate>=3")
NODE_PACKAGES = ("graphile-worker@0.16",)
_ROOT = Path(__file__).parents[3]
_FOLDER = Path(sys.prefix) / "peers"
_BIN = Path(sys.executable).parent
TASKS = Path(__file__).with_name("graphile_tasks")
"""Where graphile-worker finds its task."""

RIVER = Path(__file__).with_name("river")
"""The program in Go."""


@dataclass(frozen=True)
class Product:
    """`command`: of a worker at its own defaults, for these queues. `slots`: the options for a hundred slots.

    `has_rates`: a limit per queue can be given that makes jobs wait, without a failed attempt. `prepare`: what makes
    its tables, in the store that it needs.
    """

    name: str
    package: str
    command: Callable[[Sequence[str]], list[str]]
    slots: tuple[str, ...]
    has_many_queues: bool = True
    has_rates: bool = False
    store: str = "redis"
    prepare: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        return self.name == "pinlater"

    @property
    def version(self) -> str:
        if self.is_ours:
            return version(self.package)
        if self.name == "river":
            wanted = (line.split() for line in (RIVER / "go.mod").read_text().splitlines())
            return next(words[1] for words in wanted if words and words[0] == self.package)
        if self.prepare and self.prepare[0] == _GRAPHILE:
            manifest = _FOLDER / "node_modules" / self.package / "package.json"
            return str(json.loads(manifest.read_text())["version"])
        script = f"from importlib.metadata import version; print(version({self.package!r}))"
        return subprocess.run([self.python, "-c", script], capture_output=True, text=True, check=True).stdout.strip()

    @property
    def missing(self) -> str:
        """Why it cannot be had; "": it is there."""
        if self.is_ours:
            return ""
        return others_missing() or (river_missing() if self.name == "river" else "")

    @property
    def python(self) -> str:
        return sys.executable if self.is_ours else str(_FOLDER / "bin" / "python")


PRODUCTS = (
    Product(
        "pinlater",
        "pinlater",
        lambda queues: [str(_BIN / "pinlater-worker"), "--app", "tests.bench.peers.on_pinlater:app"],
        ("--concurrency", "100"),
        has_rates=True,
    ),
    Product(
        "celery",
        "celery",
        lambda queues: [*_other("celery"), "-A", "tests.bench.peers.on_celery", "worker", "-Q", ",".join(queues)],
        ("--pool", "threads", "--concurrency", "100"),
        has_rates=True,
    ),
    Product(
        "dramatiq",
        "dramatiq",
        lambda queues: [*_other("dramatiq"), "tests.bench.peers.on_dramatiq"],
        ("--processes", "2", "--threads", "50"),
    ),
    Product(
        "taskiq",
        "taskiq",
        lambda queues: [*_other("taskiq"), "worker", "tests.bench.peers.on_taskiq:broker"],
        ("--workers", "2", "--max-async-tasks", "50"),
        has_many_queues=False,
    ),
)

_RIVER = str(_FOLDER / "river")
_GRAPHILE = str(_FOLDER / "node_modules" / ".bin" / "graphile-worker")
_PROCRASTINATE = (str(_FOLDER / "bin" / "procrastinate"), "--app", "tests.bench.peers.on_procrastinate.app")
ON_POSTGRES = (
    replace(PRODUCTS[0], store="postgres"),
    Product(
        "procrastinate",
        "procrastinate",
        lambda queues: [*_PROCRASTINATE, "worker"],
        ("--concurrency", "100"),
        store="postgres",
        prepare=(*_PROCRASTINATE, "schema", "--apply"),
    ),
    Product(
        "graphile",
        "graphile-worker",
        lambda queues: [_GRAPHILE],
        ("--jobs", "100"),
        store="postgres",
        prepare=(_GRAPHILE, "--schema-only"),
    ),
    Product(
        "river",
        "github.com/riverqueue/river",
        lambda queues: [_RIVER, "work"],
        ("--slots", "100"),
        store="postgres",
        prepare=(_RIVER, "migrate"),
    ),
)


def _other(program: str) -> list[str]:
    return [str(_FOLDER / "bin" / program)]


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
        "BENCH_RIVER": _RIVER,
    }


@cache
def others_missing() -> str:
    """Why the others' packages cannot be had; "": they are there. They are installed once."""
    done = _FOLDER / ".installed"
    wanted = " ".join([*PACKAGES, *NODE_PACKAGES])
    if done.exists() and done.read_text() == wanted:
        return ""
    why = _failure(
        [sys.executable, "-m", "venv", "--clear", str(_FOLDER)],
        [str(_FOLDER / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES],
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(_FOLDER), *NODE_PACKAGES],
    )
    if not why:
        done.write_text(wanted)
    return why


@cache
def river_missing() -> str:
    """As others_missing. Go builds it again where its files have changed."""
    go = shutil.which("go")
    if go is None:
        return "Go is not installed"
    return _failure([go, "-C", str(RIVER), "build", "-buildvcs=false", "-o", _RIVER, "."])


def _failure(*commands: Sequence[str]) -> str:
    """Carry them out; the last that the first one says that fails."""
    for command in commands:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            return (ended.stderr.strip().splitlines() or ["no reason was given"])[-1]
    return ""
