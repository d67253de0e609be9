"""What is kept of a failure: one line with the exception's type, its message, and where in the job's code it was.

    attempt 2 of 5: ValueError: no such size (thumbnails.py:12 in shrink)

An exception may be anything a program makes up; none of this ever raises.
"""

from __future__ import annotations

import sysconfig
from types import CodeType, FrameType, TracebackType

MAX_LINE_CHARS = 500
MAX_TEXT_CHARS = 450
"""Leaves room for what stands before it in its line."""

MAX_TYPE_CHARS = 100
_MAX_FRAMES = 10_000
_FRAMEWORK = "pinlater_workers"
_LIBRARIES = ("/site-packages/", "/dist-packages/", sysconfig.get_path("stdlib") + "/")


def type_name(error: BaseException) -> str:
    return one_line(type(error).__qualname__, MAX_TYPE_CHARS)


def describe(error: BaseException, most: int = MAX_TEXT_CHARS) -> str:
    """Type, message and place, in `most` characters; one that was raised `from` another names that too."""
    text = _type_and_message(error)
    if error.__cause__ is not None:
        text = f"{text}, from {_type_and_message(error.__cause__)}"
    place = where(error)
    end = f" ({place})" if place else ""
    return one_line(text, most - len(end)) + end


def where(error: BaseException) -> str:
    """The innermost line of the job's own code, which is neither a library's nor the framework's; "" for none."""
    try:
        return _where(error.__traceback__)
    except Exception:
        return ""


def one_line(text: str, most: int) -> str:
    """Without line ends, control characters, and what is no character in UTF-8; cut to `most` characters."""
    text = " ".join(text[: 4 * most].split())
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= most else text[: max(0, most - 3)] + "..."


def _type_and_message(error: BaseException) -> str:
    try:
        message = one_line(str(error), MAX_LINE_CHARS)
    except BaseException as trouble:
        message = f"(its text cannot be had: {type(trouble).__name__})"
    return f"{type_name(error)}: {message}" if message else type_name(error)


def _where(trace: TracebackType | None) -> str:
    """Code is the job's own if it is of the function's package, or of no library."""
    own = ""
    package = None
    for _ in range(_MAX_FRAMES):
        if trace is None:
            break
        frame, code, line = trace.tb_frame, trace.tb_frame.f_code, trace.tb_lineno
        top = _package(frame)
        if top != _FRAMEWORK:
            package = package or top
            if top == package or not _of_library(code):
                own = f"{code.co_filename.rpartition('/')[2]}:{line} in {code.co_name}"
        trace = trace.tb_next
    return one_line(own, 100)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _of_library(code: CodeType) -> bool:
    return code.co_filename.startswith("<frozen ") or any(part in code.co_filename for part in _LIBRARIES)
