"""The process that tests fork the project's programs from: it has imported the modules that they would import.

`python -P fork_server.py DESCRIPTOR`, with one end of a stream socket. What comes by it: the length of a message, with
the three standard streams; then the message in JSON, with `arguments` (a program of PROGRAMS first), `folder`,
`environment`, `dies` (with this process) and `session` (a new one). What goes back: `s`, a pid and 0 for each that was
started; `e`, a pid and a wait status for each that ended. It ends with the socket.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import ctypes
import functools
import gc
import importlib
import io
import json
import logging
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

import structlog

PROGRAMS = {"pinlater": "pinlater.cli", "pinlater-worker": "pinlater_workers.cli"}
"""Name of a program, and the module whose `main` it is (console_scripts of setup.cfg)."""

FORKED_MODULES = {"pinlater.app", "pinlater.api_process"}
"""What a server starts as processes of its own."""

ANSWER = struct.Struct("!cii")
LENGTH = struct.Struct("!I")
_PR_SET_PDEATHSIG = 1


def _import_all() -> None:
    for package in ("pinlater", "pinlater_workers"):
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.", onerror=id):
            if found.name.endswith(".__main__"):
                continue
            try:
                importlib.import_module(found.name)
            except ImportError:  # a part whose library is not installed
                continue


def _receive(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """EOFError: the test process has ended."""
    head, descriptors, _flags, _address = socket.recv_fds(control, LENGTH.size, 3)
    if not head:
        raise EOFError
    text, left = b"", LENGTH.unpack(head)[0]
    while len(text) < left:
        text += control.recv(left - len(text))
    return json.loads(text), descriptors


def serve(control: socket.socket) -> dict[str, Any]:
    """Returns in each child, whose standard streams are in place, with the message that it was started by."""
    awake, waker = socket.socketpair()
    for each in (awake, waker):
        each.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(awake, selectors.EVENT_READ)
        while True:
            for key, _events in selector.select():
                if key.fileobj is awake:
                    awake.recv(4096)
                    _tell_ends(control)
                    continue
                message, descriptors = _receive(control)
                pid = os.fork()
                if not pid:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for number, descriptor in enumerate(descriptors):
                        os.dup2(descriptor, number)
                    for each in (control, awake, waker):
                        each.detach()
                    break
                for descriptor in descriptors:
                    os.close(descriptor)
                control.sendall(ANSWER.pack(b"s", pid, 0))
            else:
                continue
            break
    os.closerange(3, 1024)
    return message


def _tell_ends(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        control.sendall(ANSWER.pack(b"e", pid, status))


def _become(message: dict[str, Any], parent: int) -> str:
    """This process, as one that was started by exec would find itself. Returns the module of its program."""
    if message["dies"]:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    if message["session"]:
        os.setsid()
    os.chdir(message["folder"])
    os.environ.clear()
    os.environ.update(message["environment"])
    time.tzset()
    sys.argv = message["arguments"]
    program = sys.argv[0]
    sys.path.insert(0, os.path.dirname(program))
    sys.modules["__main__"].__file__ = program
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = sys.__stdout__ = _writer(1, "strict", unbuffered)
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace", unbuffered)
    child_process = importlib.import_module("pinlater.child_process")
    child_process.subprocess = types.SimpleNamespace(Popen=_Child, DEVNULL=subprocess.DEVNULL)  # type: ignore[attr-defined]
    return PROGRAMS[os.path.basename(program)]


def _writer(descriptor: int, errors: str, unbuffered: bool) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    binary = raw if unbuffered else io.BufferedWriter(raw)
    by_line = descriptor == 2 or os.isatty(descriptor)
    return io.TextIOWrapper(binary, errors=errors, line_buffering=by_line, write_through=unbuffered)  # type: ignore[arg-type]


class _Child(subprocess.Popen[Any]):
    """A process of a server that was forked itself: forked too, while its supervisor has one thread."""

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, *more: Any
    ) -> None:
        command = list(args)
        module = command[command.index("-c") + 2] if "-c" in command else None
        if module not in FORKED_MODULES or threading.active_count() > 1:
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, *more)  # type: ignore[misc]
            return
        pipes, group = more[5:11], more[17]
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
            return
        if group == 0:
            os.setpgid(0, 0)
        _forget(pass_fds, [pipes[0], pipes[3], pipes[5]])
        sys.modules.pop(module, None)
        sys.argv = command[command.index("-c") + 2 :]
        run = functools.partial(runpy.run_module, module, run_name="__main__", alter_sys=True)
        _end(contextvars.Context().run(_code_of, run))


def _forget(kept: Sequence[int], streams: Sequence[int]) -> None:
    """What a child that is started by exec would not have of its parent."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    for number, descriptor in enumerate(streams):
        if descriptor != -1:
            os.dup2(descriptor, number)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    asyncio._set_running_loop(None)
    asyncio.set_event_loop_policy(None)
    atexit._clear()
    logging.getLogger().handlers.clear()
    structlog.reset_defaults()


def _code_of(program: Callable[[], Any]) -> int:
    """What `sys.exit(program())` would end with; below 0 for a signal."""
    try:
        sys.exit(program())
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def _end(code: int) -> None:
    """As Python ends, but for the objects, each of which it would touch: pages that are shared till then."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120  # which Python ends with then
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    gc.collect()
    gc.freeze()
    parent = os.getpid()
    try:
        message = serve(control)
    except EOFError:
        return
    _end(_code_of(importlib.import_module(_become(message, parent)).main))


if __name__ == "__main__":
    main()
