"""A program that runs commands with streams in every condition: `python -m tests.server.stream_cases < CASES`.

Each runs in a fork of this process, which has imported all of it already, and ends as a process of its own would.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import pty
import struct
import sys
import tempfile
import termios
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import IO, NamedTuple, NoReturn

import click

PROGRAMS = {"pinlater": "pinlater.cli", "pinlater-worker": "pinlater_workers.cli"}
NAMES = ("stdin", "stdout", "stderr")


class Case(NamedTuple):
    """`streams`: the conditions of descriptors, by number: closed, full, broken; as usual where nothing is said.
    `columns`: all three are a terminal of so many.
    """

    line: Sequence[str]
    streams: Mapping[str, str] = {}
    columns: int = 0


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def _set(number: int, condition: str, usual: int) -> None:
    """In the child."""
    if condition == "closed":
        os.close(number)
        setattr(sys, NAMES[number], None)
        return
    opened = usual
    if condition == "full":
        opened = os.open("/dev/full", os.O_WRONLY)
    elif condition == "broken":
        reads, opened = os.pipe()
        os.close(reads)
    os.dup2(opened, number)
    stream = open(number, "w" if number else "r", closefd=False, errors="backslashreplace")  # noqa: SIM115
    setattr(sys, NAMES[number], stream)


def _run(case: Case, main: object, out: IO[bytes], err: IO[bytes], terminal: int) -> NoReturn:
    """In the child."""
    sys.argv = list(case.line)
    nothing = os.open(os.devnull, os.O_RDONLY)
    if case.columns:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for number, usual in enumerate((nothing, out.fileno(), err.fileno())):
        _set(number, case.streams.get(str(number), ""), terminal if case.columns else usual)
    code: object = 1
    try:
        main(prog_name=case.line[0])  # type: ignore[operator]
    except SystemExit as ending:
        code = ending.code
    except BaseException:
        traceback.print_exc()
    try:  # as an interpreter does that ends, in much less time
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    os._exit(code if isinstance(code, int) else int(code is not None))


def ended(case: Case) -> Ended:
    main = import_module(PROGRAMS[case.line[0]]).main
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, case.columns or 80, 0, 0))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            _run(case, main, out, err, terminal)
        os.close(terminal)
        shown = b""
        with suppress(OSError):
            while case.columns and (more := os.read(ours, 65_536)):
                shown += more
        os.close(ours)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        said = (shown or out.read(), err.read())
    return Ended(os.waitstatus_to_exitcode(status), *(each.decode(errors="replace") for each in said))


def run_all() -> None:
    cases = [Case(*given) for given in json.load(sys.stdin)]
    for name in ("pinlater.client.client", "sqlalchemy.dialects.sqlite"):
        import_module(name)
    for program, name in {(case.line[0], case.line[1]) for case in cases if len(case.line) > 1}:
        main = import_module(PROGRAMS[program]).main
        main.get_command(click.Context(main), name)
    gc.freeze()
    json.dump([ended(case) for case in cases], sys.stdout)


if __name__ == "__main__":
    run_all()
