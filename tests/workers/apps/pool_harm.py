"""Jobs that harm the process they run in, or say something of it."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import subprocess
import sys
import threading
import time

from pinlater_workers import App
from pinlater_workers.jobs.context import current

QUEUE = "harm"
LONG_S = 60.0

app = App(servers=["127.0.0.1:1"])
kept: list[bytearray] = []


def say(text: object) -> None:
    current().set_status(str(text))


@app.job(queue=QUEUE)
def own_id() -> None:
    say(os.getpid())


@app.job(queue=QUEUE)
def exits(code: int) -> None:
    os._exit(code)


@app.job(queue=QUEUE)
def crashes() -> None:
    faulthandler.disable()  # its trace would stand in the test's output
    ctypes.string_at(0)


@app.job(queue=QUEUE)
def is_killed() -> None:
    """As by the kernel, when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(queue=QUEUE)
def holds_interpreter() -> None:
    """C code that never lets go of the interpreter's lock."""
    say(os.getpid())
    re.match(r"(a+)+$", "a" * 64 + "b")


@app.job(queue=QUEUE)
def starts_program() -> None:
    program = subprocess.Popen(["sleep", str(LONG_S)])
    say(program.pid)
    program.wait()


@app.job(queue=QUEUE)
def copies_itself_and_exits() -> None:
    """A copy of the process, made past Python, that holds all its connections open."""
    copy = ctypes.CDLL(None).fork()
    if copy == 0:
        time.sleep(LONG_S)
        os._exit(0)
    say(copy)
    os._exit(7)


@app.job(queue=QUEUE)
def ends_program() -> None:
    """Says how a program ended that was asked to end."""
    program = subprocess.Popen(["sleep", str(LONG_S)])
    program.terminate()
    say(program.wait())


@app.job(queue=QUEUE)
def forks() -> None:
    """Both return."""
    os.fork()


@app.job(queue=QUEUE)
def ends_fork() -> None:
    child = os.fork()
    if child == 0:
        time.sleep(LONG_S)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


@app.job(queue=QUEUE)
def closes_all() -> None:
    os.closerange(3, 4096)


@app.job(queue=QUEUE)
def closes_all_and_goes_on() -> None:
    os.closerange(3, 4096)
    time.sleep(LONG_S)


@app.job(queue=QUEUE)
def opens_in_its_place(path: str) -> None:
    """What the job opens gets the numbers of the connections that it closed."""
    os.closerange(3, 4096)
    for _ in range(32):
        os.open(path, os.O_WRONLY)


@app.job(queue=QUEUE)
def is_signalled() -> None:
    """By its own process, as a terminal or a service manager signals them all."""
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)


@app.job(queue=QUEUE)
def keeps(mib: int) -> None:
    kept.append(bytearray(b"x") * (mib << 20))
    say(os.getpid())


@app.job(queue=QUEUE)
def prints(text: str) -> None:
    """And is killed before its output would be written by itself."""
    print(text)
    print(text, file=sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(queue=QUEUE)
def leaves_thread() -> None:
    """One that goes on after the job, and uses its context."""
    context = current()

    def late() -> None:
        while True:
            time.sleep(0.01)
            context.set_status("late")

    threading.Thread(target=late, daemon=True).start()
