"""The detection of calls that block the event loop they run on."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType

_OURS = ("pinlater.", "pinlater_workers.", "contextlib", "functools")


def holds_up_loop() -> bool:
    """Whether a call that blocks here keeps an event loop from going on."""
    loop = asyncio._get_running_loop()
    if loop is None:
        return False
    patched = sys.modules.get("gevent.monkey")
    if patched is None or not patched.is_module_patched("threading"):
        return True
    return asyncio.current_task(loop) is not None  # else the loop is another greenlet's


def calling_line() -> str:
    """Where the code of others called ours: file, line and function."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and f"{frame.f_globals.get('__name__', '')}.".startswith(_OURS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}" if frame else "an unknown place"
