"""Child processes, as a parent on an event loop sees them; and the death of the parent, as a child sees it.

A child is started by exec, never by fork, imports from where its parent does, and speaks to it over sockets that it
inherits. The parent learns of its end from the kernel (a pidfd), and asks from time to time where there is none. It
replaces a child that ends, and counts the starts that fail (`Restarts`): what fails for good is not to go on for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

_X_FLAGS = {"dev_mode": "dev", "utf8_mode": "utf8"}
ASK_EVERY_S = 0.05
PARENT_ASK_EVERY_S = 0.5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
STARTS = 8
"""So many starts in a row that fail are no accident: with the pauses between them a quarter of a minute."""

_PR_SET_PDEATHSIG = 1
_RUN_MODULE = (
    "import runpy, sys; sys.path[:] = {path!r}; del sys.argv[0]; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


def module_command(module: str) -> list[str]:
    """`python -m MODULE`, to be followed by its arguments, that imports from where this process does: a program may
    have put the packages on its path itself, and nothing else would find them. It has the switches of this process.
    """
    return [sys.executable, *_switches(), "-c", _RUN_MODULE.format(path=[_absolute(each) for each in sys.path]), module]


def _switches() -> list[str]:
    """Those that this Python was started with; the current folder is never on the path by itself."""
    switches = ["-I"] if sys.flags.isolated else ["-P", *(["-E"] if sys.flags.ignore_environment else [])]
    switches += ["-s"] if sys.flags.no_user_site and not sys.flags.isolated else []
    switches += ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    switches += [f"-W{each}" for each in sys.warnoptions]
    return [*switches, *(f"-X{name}" for flag, name in _X_FLAGS.items() if getattr(sys.flags, flag))]


def _absolute(entry: str) -> str:
    try:
        return os.path.abspath(entry) if not entry or os.path.exists(entry) else entry  # an import hook's is no path
    except FileNotFoundError:  # the working folder was removed
        return entry


def children_inherit_sockets() -> bool:
    """Whether a child can be started here as this module does it: by exec, with the sockets of its parent. Not on
    Windows.
    """
    return hasattr(os, "fork")


class Restarts:
    """The starts of one child, or of children of one kind, that are replaced when they end."""

    def __init__(self) -> None:
        self._failures = 0
        self._final = 0

    def served(self) -> None:
        """One has done its work: what failed before counts no more."""
        self._failures = self._final = 0

    def failed(self, *, may_pass: bool = False) -> None:
        """One ended before it had served. `may_pass`: what it lacked may be there again, as memory is."""
        self._failures += 1
        self._final = 0 if may_pass else self._final + 1

    @property
    def pause_s(self) -> float:
        """Before the next start: doubled with each that failed."""
        if not self._failures:
            return 0.0
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 16))

    @property
    def is_over(self) -> bool:
        """They fail for good."""
        return self._final >= STARTS


class ChildProcess:
    """A child that is started when this is made, and watched until it has ended. OSError: the system can start no more.

    `exited(code)` is called once, on the loop, when the child has ended and was waited for. A code below 0 is a signal.
    With `own_group` the child leads a process group: a Ctrl-C at the terminal does not reach it, and programs in that
    group are killed with it, or when it has ended, unless `spares_group` is set. `quiet`: without standard output.
    """

    def __init__(
        self,
        command: Sequence[str],
        descriptors: Sequence[int],
        exited: Callable[[int], None],
        *,
        own_group: bool = True,
        quiet: bool = False,
    ) -> None:
        self.spares_group = not own_group
        self._own_group = own_group
        self._exited = exited
        self._loop = asyncio.get_running_loop()
        self._pidfd: int | None = None
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else None,
            pass_fds=descriptors,
            process_group=0 if own_group else None,
        )
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._asking = self._loop.call_later(ASK_EVERY_S, self._ask)
        else:
            self._loop.add_reader(self._pidfd, self._end)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        """It has ended, and was waited for."""
        return self._process.returncode is not None

    def kill(self) -> None:
        """SIGKILL, to its whole group where it has one of its own. `exited` follows."""
        if not self.is_gone:
            self._kill(group=self._own_group)

    def kill_now(self) -> None:
        """`kill`, and `exited` is called before this returns: for where the loop goes no further."""
        if not self.is_gone:
            self._kill(group=self._own_group)
            self._end()

    def _kill(self, *, group: bool) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _ask(self) -> None:
        if self._process.poll() is None:
            self._asking = self._loop.call_later(ASK_EVERY_S, self._ask)
        else:
            self._end()

    def _end(self) -> None:
        """The group goes before the child is waited for: until then no other process can have its id."""
        if self._pidfd is None:
            self._asking.cancel()
        else:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        if not self.spares_group:
            self._kill(group=True)
        self._exited(self._process.wait())


def exit_text(code: int) -> str:
    """
    >>> exit_text(3), exit_text(-9)
    ('exit code 3', 'killed by SIGKILL')
    """
    return f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"


# -- the child's side --------------------------------------------------------------------------------------------------


def die_with_parent(parent: int) -> None:
    """From now on the kernel kills this process when the thread that started it ends (Linux). Ends at once if it has.

    `parent`: the process id of the parent. Elsewhere `parent_is_gone` has to be asked from time to time.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent_is_gone(parent):
        os._exit(0)


def parent_is_gone(parent: int) -> bool:
    return os.getppid() != parent


def on_parent_gone(parent: int, then: Callable[[], object]) -> None:
    """Calls `then` once the parent is gone, for where the kernel does not tell. On the running loop."""
    if parent_is_gone(parent):
        then()
    else:
        asyncio.get_running_loop().call_later(PARENT_ASK_EVERY_S, on_parent_gone, parent, then)
