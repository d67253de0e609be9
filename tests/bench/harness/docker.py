"""What the harness asks of `docker`, done on this machine: `python -m tests.bench.harness.docker --help`.

The harness starts its store and most of its adapters through `docker compose` and `docker run`. Where there is no
Docker, its PATH begins with a folder whose `docker` is this program: the store is Debian's PostgreSQL with the
harness's own postgres.conf, and an image is the adapter's program with its packages, in a place of its own.
A program that is killed is gone. (A container outlives a `docker run` that is killed.)
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.stores.postgres_server import as_nobody, postgres_program

PORT = int(os.environ.get("HARNESS_PORT", "15555"))
"""The harness knows no other; a test does."""
USER = "bench"
STOPPED_WITHIN_S = 10.0
"""As `docker compose stop`, which kills what has not ended by then."""
CHECKOUT, STATE = "HARNESS_CHECKOUT", "HARNESS_STATE"
"""The variables with the folder of the harness, and with that of what is built and stored for it."""


class Image(NamedTuple):
    """An adapter of the harness. `build`: commands that make its program in a folder from its sources; `program`: what
    runs it there.
    """

    build: Callable[[Path, Path], Sequence[Sequence[str]]]
    program: Callable[[Path, Path], Sequence[str]]


def _python(source: Path, folder: Path) -> list[list[str]]:
    return [
        [sys.executable, "-m", "venv", str(folder / "venv")],
        [str(folder / "venv/bin/pip"), "install", "--quiet", *_dependencies(source)],
    ]


def _dependencies(source: Path) -> list[str]:
    """Those that a project pins."""
    return list(tomllib.loads((source / "pyproject.toml").read_text())["project"]["dependencies"])


def _node(source: Path, folder: Path) -> list[list[str]]:
    files = [str(source / name) for name in ("package.json", "package-lock.json", "main.js")]
    return [["cp", *files, str(folder)], ["npm", "ci", "--omit=dev", "--loglevel=error", "--prefix", str(folder)]]


IMAGES = {
    "procrastinate-bench": Image(
        _python, lambda source, folder: [str(folder / "venv/bin/python"), str(source / "main.py")]
    ),
    "river-bench": Image(
        lambda source, folder: [
            ["go", "-C", str(source), "build", "-buildvcs=false", "-o", str(folder / "river"), "."]
        ],
        lambda source, folder: [str(folder / "river")],
    ),
    "pgboss-bench": Image(_node, lambda source, folder: ["node", str(folder / "main.js")]),
}


def build(image: str) -> None:
    """Once: what stands in the folder of an image is taken as it is."""
    folder, source = _state(image), _checkout(image)
    if (folder / "built").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for command in IMAGES[image].build(source, folder):
        subprocess.run(command, check=True)
    (folder / "built").touch()


def run(image: str, variables: Sequence[str], volumes: Sequence[str]) -> None:
    """The program in place of this one, so that a signal for the one reaches the other.

    None of these reads what the harness writes to it: it is thrown away, or the harness would wait for ever with a full
    pipe.
    """
    env = {**os.environ, **dict(each.split("=", 1) for each in variables)}
    for volume in volumes:
        outside, inside = volume.rsplit(":", 1)
        env = {name: _outside(value, inside, outside) for name, value in env.items()}
    with open(os.devnull, "r+b") as nothing:
        subprocess.Popen(["cat"], stdout=nothing, stderr=nothing)
        os.dup2(nothing.fileno(), 0)
    command = IMAGES[image].program(_checkout(image), _state(image))
    os.execvpe(command[0], command, env)


def _outside(value: str, inside: str, outside: str) -> str:
    return outside + value.removeprefix(inside) if value.startswith(f"{inside}/") else value


def start() -> int:
    """The store; it is left as it is while it runs. The process ends with nobody: see `down`."""
    if ready():
        return 0
    data = _state("postgres")
    if not data.exists():
        _install(data)
    where = ["-D", str(data), "-p", str(PORT), "-c", f"config_file={_checkout('postgres.conf')}"]
    own = [
        "-c",
        f"hba_file={data}/pg_hba.conf",
        "-c",
        f"ident_file={data}/pg_ident.conf",
        "-c",
        "listen_addresses=127.0.0.1",
    ]
    with (data.parent / "postgres.log").open("ab") as log:
        subprocess.Popen(
            [*_as_nobody_for_good(), postgres_program("postgres"), *where, *own, "-c", "unix_socket_directories="],
            cwd=data.parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    until_s = time.monotonic() + 60
    while not ready():
        if time.monotonic() > until_s:
            raise SystemExit(f"the store did not start: {(data.parent / 'postgres.log').read_text()[-2000:]}")
        time.sleep(0.1)
    return 0


def _install(data: Path) -> None:
    data.parent.mkdir(parents=True, exist_ok=True)
    if as_nobody():
        shutil.chown(data.parent, "nobody")
    made = [postgres_program("initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C"]
    subprocess.run([*as_nobody(), *made], check=True, stdout=subprocess.DEVNULL, cwd=data.parent)


def _as_nobody_for_good() -> list[str]:
    """Not to die with this program, which ends at once."""
    prefix = as_nobody()
    return prefix[: prefix.index("--pdeathsig")] if "--pdeathsig" in prefix else prefix


def ready() -> bool:
    checked = [postgres_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(PORT), "-U", USER]
    return subprocess.run(checked, check=False).returncode == 0


def stop() -> int:
    """As a container stops: the signal of its image, and after a while that which nothing survives."""
    pid = _pid()
    if pid is None:
        return 0
    os.kill(pid, signal.SIGINT)
    until_s = time.monotonic() + STOPPED_WITHIN_S
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > until_s:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return 0


def _pid() -> int | None:
    """Of the store, while it runs."""
    with contextlib.suppress(FileNotFoundError):
        pid = int((_state("postgres") / "postmaster.pid").read_text().split()[0])
        return pid if Path(f"/proc/{pid}").exists() else None
    return None


def down() -> int:
    """With the data."""
    stop()
    shutil.rmtree(_state("postgres"), ignore_errors=True)
    return 0


def _state(name: str) -> Path:
    return Path(os.environ[STATE]) / name


def _checkout(name: str) -> Path:
    return Path(os.environ[CHECKOUT]) / name


def main() -> int:
    parser = argparse.ArgumentParser(prog="docker", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    compose = commands.add_parser("compose", help="up | start | stop | down | exec ... pg_isready")
    compose.add_argument("action", choices=("up", "start", "stop", "down", "exec", "version"))
    built = commands.add_parser("build", help="make the program of an image")
    built.add_argument("-t", dest="image", required=True, choices=IMAGES)
    ran = commands.add_parser("run", help="run the program of an image")
    for name in ("-e", "-v"):
        ran.add_argument(name, action="append", default=[])
    ran.add_argument("--network")
    ran.add_argument("image", choices=IMAGES)
    options, _ = parser.parse_known_args()
    if options.command == "build":
        build(options.image)
        return 0
    if options.command == "run":
        run(options.image, options.e, options.v)
    actions = {"up": start, "start": start, "stop": stop, "down": down, "exec": lambda: 0 if ready() else 1}
    return actions.get(options.action, lambda: 0)()


if __name__ == "__main__":
    sys.exit(main())
