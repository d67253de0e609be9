"""How long it takes from nothing to a first job that was done, by each way there is, and beside other products.

`scripts/bench adoption [WAY...]` prints the table of docs/installing.md. Each way begins in an empty folder. Packages
come from a folder of wheels, or by way of a cache that has them, so no network is measured. Beside the seconds of a
clock stand those of a processor, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.peers.products import RIVER
from tests.packaging.compose_services import RunningServices
from tests.packaging.conftest import ROOT
from tests.packaging.image_steps import DOCKERFILE, carry_out, context_files, image_of_checkout, stages_of
from tests.packaging.scratch_root import ScratchRoot, eventually
from tests.stores.postgres_server import PostgresServer
from tests.stores.process import free_port
from tests.stores.redis_server import RedisServer

FIRST_JOB = ROOT / "tests" / "packaging" / "first_job.py"
CELERY_TASKS = """
from celery import Celery
app = Celery("tasks", broker="{url}", backend="{url}")

@app.task
def hello(name):
    return f"Hello {{name}}!"
"""


@dataclass(frozen=True)
class Way:
    """`run` gets an empty folder and the folder of wheels, and gives what was installed, for its size."""

    name: str
    commands: Sequence[str]
    run: Callable[[Path, Path], Path | None]


def call(*command: str | Path, cwd: Path, **variables: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment = {name: value for name, value in environment.items() if not name.startswith("PINLATER_")} | variables
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")


@contextmanager
def running(*command: str | Path, cwd: Path, variables: Mapping[str, str] | None = None) -> Iterator[None]:
    with open(cwd / "log", "w") as log:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(
            variables or {}
        )
        program = subprocess.Popen(list(map(str, command)), cwd=cwd, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        program.send_signal(signal.SIGTERM)
        program.wait(60)


def does_a_first_job(programs: Path, folder: Path) -> None:
    port = free_port()
    with running(programs / "pinlater", "serve", "--port", str(port), "--http=none", "--api=none", cwd=folder):
        call(programs / "python", "-I", FIRST_JOB, f"127.0.0.1:{port}", cwd=folder)


def environment_of(folder: Path, wheels: Path, requirement: str) -> Path:
    call(sys.executable, "-m", "venv", "venv", cwd=folder)
    pip = (folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    call(*pip, "--no-index", "--find-links", wheels, requirement, cwd=folder)
    return folder / "venv" / "bin"


def from_wheels(folder: Path, wheels: Path) -> Path:
    programs = environment_of(folder, wheels, "pinlater[server]")
    does_a_first_job(programs, folder)
    return folder / "venv"


def client_from_wheels(folder: Path, wheels: Path) -> Path:
    call(environment_of(folder, wheels, "pinlater") / "pinlater", "--version", cwd=folder)
    return folder / "venv"


def one_file(folder: Path, wheels: Path) -> Path:
    shutil.copy2(wheels.parent / "pinlater.pyz", folder)
    call(sys.executable, "pinlater.pyz", "--version", cwd=folder, SHIV_ROOT=str(folder / "shiv"))
    return folder


def checkout(folder: Path, *, uv: bool) -> Path:
    """`git clone`, and what the scripts set up. Packages come from the installer's cache, where that has them."""
    call("git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", "pinlater", cwd=folder)
    place = folder / "pinlater"
    call("./scripts/setup", "server", cwd=place, PINLATER_UV="yes" if uv else "no")
    does_a_first_job(place / ".venv" / "bin", folder)
    return place / ".venv"


def image(folder: Path, wheels: Path) -> Path:
    context = folder / "context"
    for name in context_files(ROOT, (ROOT / ".dockerignore").read_text()):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, context / name)
    shutil.copy2(ROOT / ".dockerignore", context)
    shutil.copytree(wheels, context / "dist" / "wheels", dirs_exist_ok=True)
    build, last = stages_of(DOCKERFILE.read_text())
    with ScratchRoot(sys.executable) as first, ScratchRoot(sys.executable) as second:
        carry_out(build, first, context, {}, {"PIP_NO_INDEX": "1"})
        start = carry_out(last, second, context, {"build": first}, {})
        log = second.start(last.command, **start)
        eventually(lambda: second.run(last.health_check, **start), said=log)
        second.copy(FIRST_JOB, "/first_job.py")
        second.run(["python", "-I", "/first_job.py", "127.0.0.1:9010"], **start)
        shutil.copytree(second.path("/opt/pinlater"), folder / "opt", symlinks=True)
    return folder / "opt"


def compose(_folder: Path, _wheels: Path) -> None:
    with image_of_checkout() as (stage, root, start):
        services = RunningServices(ROOT / "conf" / "compose" / "compose.yaml", stage, root, start)
        services.up()
        services.run("worker", "python", "jobs.py")

        def all_done() -> None:
            assert '"succeeded": 3' in services.run("server", "pinlater", "queue", "stats", "greetings", "-o", "json")

        eventually(all_done)


def celery(folder: Path, _wheels: Path) -> Path:
    """As its first steps say, with Redis as broker and for results."""
    call(sys.executable, "-m", "venv", "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    call(programs / "python", "-m", "pip", "install", "--quiet", "celery[redis]", cwd=folder)
    redis = RedisServer(durable=False)
    try:
        redis.start()
        (folder / "tasks.py").write_text(CELERY_TASKS.format(url=redis.url()))
        asked = "import tasks; assert tasks.hello.delay('Ada').get(timeout=60) == 'Hello Ada!'"
        with running(programs / "celery", "-A", "tasks", "worker", cwd=folder):
            call(programs / "python", "-c", asked, cwd=folder)
    finally:
        redis.stop()
    return folder / "venv"


def river(folder: Path, _wheels: Path) -> Path:
    """A program with a client and a worker, compiled with nothing compiled before; its modules are in Go's cache."""
    shutil.copytree(RIVER, folder / "source")
    call("go", "build", "-o", folder / "river", ".", cwd=folder / "source", GOCACHE=str(folder / "cache"))
    postgres = PostgresServer(durable=False)
    try:
        postgres.start()
        postgres.empty(0)
        (folder / "record").touch()
        said = {
            "DATABASE_URL": postgres.url().replace("+psycopg", ""),
            "BENCH_QUEUES": "mail",
            "BENCH_RECORD": str(folder / "record"),
        }
        call(folder / "river", "migrate", cwd=folder, **said)
        with running(folder / "river", "work", cwd=folder, variables=said):
            words = {**os.environ, **said}
            subprocess.run(
                [folder / "river", "send"],
                input="mail 1\n",
                env=words,
                text=True,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            deadline = time.monotonic() + 60
            while not (folder / "record").stat().st_size:
                if time.monotonic() > deadline:
                    raise RuntimeError("River did no job")
                time.sleep(0.02)
    finally:
        postgres.stop()
    return folder / "river"


INSTALL = "pip install --no-index --find-links wheels"
WAYS = (
    Way("client", ("python -m venv venv", f"{INSTALL} pinlater"), client_from_wheels),
    Way("pyz", ("python3 pinlater.pyz",), one_file),
    Way("wheels", ("python -m venv venv", f"{INSTALL} 'pinlater[server]'", "pinlater serve"), from_wheels),
    Way("checkout-uv", ("git clone", "./scripts/setup server", "pinlater serve"), lambda f, w: checkout(f, uv=True)),
    Way("checkout-pip", ("git clone", "./scripts/setup server", "pinlater serve"), lambda f, w: checkout(f, uv=False)),
    Way("image", ("docker build", "docker run"), image),
    Way("compose", ("docker compose up --wait", "docker compose exec worker python jobs.py"), compose),
    Way("celery", ("venv", "pip install", "a module", "redis-server", "celery worker", "a call"), celery),
    Way("river", ("a module", "go build", "PostgreSQL", "migrate", "work", "send"), river),
)


def spent_s() -> float:
    """Processor time of what was started and has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def size_of(folder: Path) -> float:
    """In megabytes; a file with two names counts once."""
    if folder.is_file():
        return folder.stat().st_size / 1e6
    found = {(each.st_dev, each.st_ino): each.st_size for each in map(os.lstat, folder.rglob("*"))}
    return sum(found.values()) / 1e6


def measured(way: Way, wheels: Path) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory(prefix="pinlater-adoption-") as folder:
        began_s, before_s = time.monotonic(), spent_s()
        installed = way.run(Path(folder), wheels)
        took_s, worked_s = time.monotonic() - began_s, spent_s() - before_s
        size = "" if installed is None else f"{size_of(installed):.0f}"
    return f"| {way.name} | {len(way.commands)}: {', '.join(way.commands)} | {took_s:.1f} | {worked_s:.1f} | {size} |"


def main() -> None:
    names = [way.name for way in WAYS]
    parser = argparse.ArgumentParser(prog="scripts/bench adoption", description=__doc__)
    parser.add_argument("way", nargs="*", choices=[*names, []], help=f"only these: {', '.join(names)}")
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist" / "wheels", help="made by scripts/release")
    options = parser.parse_args()
    if not options.wheels.is_dir():
        parser.error(f"there is no {options.wheels}: ./scripts/release --trial makes it")
    print("| way | commands | seconds | of a processor | MB |\n| --- | --- | --- | --- | --- |", flush=True)
    for way in WAYS:
        if way.name in (options.way or names):
            print(measured(way, options.wheels.resolve()), flush=True)


if __name__ == "__main__":
    main()
