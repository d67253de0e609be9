"""A process that ends with the one that started it, however that dies."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
LOOK_S = 0.5


def die_with(parent: int) -> None:
    """From now on the kernel kills this process when the thread that started it ends (Linux). Ends at once if it has.

    `parent`: the process id of who started this one. Elsewhere `has_lost` has to be asked from time to time.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if has_lost(parent):
        os._exit(0)


def has_lost(parent: int) -> bool:
    """Whether who started this process is gone."""
    return os.getppid() != parent


def when_lost(parent: int, then: Callable[[], object]) -> None:
    """Calls `then` once the parent is gone, for where the kernel does not tell. On the running loop."""
    if has_lost(parent):
        then()
    else:
        asyncio.get_running_loop().call_later(LOOK_S, when_lost, parent, then)
