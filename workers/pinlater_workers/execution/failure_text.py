"""The text of a failed attempt: its line in the job's status, and the traceback of the job's own code.

    attempt 3 of 3: ConnectionError: mx1 refused (mail.py:42 in deliver) [2026-11-23T00:09:12Z, 1.2s, web-1:4711]
      File "/srv/shop/mail.py", line 42, in deliver
        smtp.connect(host)
      ... 2 frames of smtplib, socket, down to socket.py:850 in create_connection

The traceback follows where no attempt does. Nothing here raises, whatever the exception does.
"""

from __future__ import annotations

import linecache
import sysconfig
from collections.abc import Iterator, Sequence
from types import CodeType, CoroutineType, FrameType, GeneratorType, TracebackType

from pinlater.job_body import SECRET_MASK

MAX_LINE_CHARS = 500
MAX_TEXT_CHARS = 450
"""Leaves room for what stands before it in its line."""
MAX_TYPE_CHARS = 100
LINES_CHARS = 2_300
"""For the lines of all attempts but the last: with its traceback they fit into a status."""
LEAST_LINE_CHARS = 160
MAX_TRACE_CHARS = 2_000
OWN_SHARE = 0.6
"""Of the traceback, where the exception that caused it has one too."""
MAX_CAUSES = 3
MAX_LOGGED_CHARS = 20_000
"""Of the text of an exception, in a log: it may hold a whole document."""
MAX_PATH_CHARS = 120
MAX_SOURCE_CHARS = 160
_MAX_FRAMES = 10_000
_FRAMEWORK = ("pinlater", "pinlater_workers")
_ATTEMPT = "pinlater_workers.execution.attempt"
_LIBRARIES = ("/site-packages/", "/dist-packages/", sysconfig.get_path("stdlib") + "/")

Place = tuple[FrameType, int]
"""A frame, and the line it is at."""


def line_chars(attempts_allowed: int) -> int:
    """How long the line of an attempt that others follow may be."""
    return max(LEAST_LINE_CHARS, min(MAX_LINE_CHARS, LINES_CHARS // max(1, attempts_allowed)))


def type_name(error: BaseException) -> str:
    return one_line(type(error).__qualname__, MAX_TYPE_CHARS)


def describe(error: BaseException, most: int = MAX_TEXT_CHARS, secrets: Sequence[str] = ()) -> str:
    """Type, message and place, in `most` characters; one that was raised `from` another names that too.

    `secrets` are masked in messages.
    """
    text = _type_and_message(error, secrets)
    if error.__cause__ is not None:
        text = f"{text}, from {_type_and_message(error.__cause__, secrets)}"
    place = where(error)
    end = f" ({place})" if place else ""
    return one_line(text, most - len(end)) + end


def where(error: BaseException) -> str:
    """The innermost line of the job's own code, which is neither a library's nor the framework's; "" for none."""
    return place_text(error.__traceback__)


def place_text(trace: TracebackType | None) -> str:
    """The innermost line of the job's own code in this traceback; "" for none."""
    try:
        places = _places(trace)
        own = [place for place, is_own in zip(places, _are_own(places), strict=True) if is_own]
        return _short(own[-1]) if own else ""
    except Exception:
        return ""


def trace_text(error: BaseException, most: int = MAX_TRACE_CHARS, secrets: Sequence[str] = ()) -> str:
    """The traceback as lines that stand in from the edge, each with its end; "" where there is none.

    The job's own frames whole, those of libraries between them in one line. Where it is too long the outermost go.
    What it was raised from, or while handling, follows.
    """
    try:
        return "".join(f"  {line}\n" for line in _trace_lines(error, most, secrets))
    except Exception:
        return ""


def stack_trace(frames: Sequence[FrameType]) -> TracebackType | None:
    """A traceback of what runs, from the outermost frame to the innermost, for what is ended where it stands."""
    trace = None
    for frame in reversed(frames):
        trace = TracebackType(trace, frame, max(0, frame.f_lasti), frame.f_lineno or frame.f_code.co_firstlineno)
    return trace


def frames_of_stack(innermost: FrameType | None) -> list[FrameType]:
    """The frames of a thread within the attempt, from the outermost on."""
    found: list[FrameType] = []
    while innermost is not None and len(found) < _MAX_FRAMES and _module(innermost) != _ATTEMPT:
        found.append(innermost)
        innermost = innermost.f_back
    return found[::-1]


def frames_of_coroutine(coroutine: object) -> list[FrameType]:
    """Where a coroutine waits, from the outermost frame on: each awaits the next. What is no coroutine ends it."""
    found: list[FrameType] = []
    while len(found) < _MAX_FRAMES:
        if isinstance(coroutine, CoroutineType):
            frame, coroutine = coroutine.cr_frame, coroutine.cr_await
        elif isinstance(coroutine, GeneratorType):
            frame, coroutine = coroutine.gi_frame, coroutine.gi_yieldfrom
        else:
            break
        if frame is not None:
            found.append(frame)
    return found


def loggable(error: BaseException) -> BaseException:
    """The same; or, where the texts of it or of its causes are enormous, one of that name with its beginning."""
    linked, found = [error], 0
    while found < len(linked) <= _MAX_FRAMES:
        each, found = linked[found], found + 1
        if len(_text(each)) > MAX_LOGGED_CHARS:
            return _shortened(error)
        parts = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        linked += [
            other for other in (each.__cause__, each.__context__, *parts) if other is not None and other not in linked
        ]
    return error


def one_line(text: str, most: int) -> str:
    """Without line ends, control characters, and what is no character in UTF-8; cut to `most` characters."""
    text = " ".join(text[: 4 * most].split())
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= most else text[: max(0, most - 3)] + "..."


def _text(error: BaseException) -> str:
    try:
        return "\n".join([str(error), *getattr(error, "__notes__", ())])
    except Exception:
        return ""


def _cut(text: str) -> str:
    if len(text) <= MAX_LOGGED_CHARS:
        return text
    return f"{text[:MAX_LOGGED_CHARS]}... ({len(text):,} characters in all)"


def _shortened(error: BaseException, depth: int = 0) -> BaseException:
    text = _cut(_text(error))
    for part in error.exceptions[:MAX_CAUSES] if isinstance(error, BaseExceptionGroup) else ():
        text += f"\n{type(part).__name__}: {_cut(_text(part))}"
    kind = type(type(error).__name__, (Exception,), {"__module__": type(error).__module__})
    made: BaseException = kind(text).with_traceback(error.__traceback__)
    if depth < MAX_CAUSES:
        cause, context = error.__cause__, error.__context__
        made.__cause__ = None if cause is None else _shortened(cause, depth + 1)
        made.__context__ = None if context is None else _shortened(context, depth + 1)
    made.__suppress_context__ = error.__suppress_context__
    return made


def _type_and_message(error: BaseException, secrets: Sequence[str]) -> str:
    try:
        message = str(error)
        for secret in secrets:
            message = message.replace(secret, SECRET_MASK)
        message = one_line(message, MAX_LINE_CHARS)
    except BaseException as fault:
        message = f"(its text cannot be had: {type(fault).__name__})"
    return f"{type_name(error)}: {message}" if message else type_name(error)


# -- frames ------------------------------------------------------------------------------------------------------------


def _places(trace: TracebackType | None) -> list[Place]:
    """From the outermost on, without the framework's that made the call."""
    places: list[Place] = []
    while trace is not None and len(places) < _MAX_FRAMES:
        if places or _package(trace.tb_frame) not in _FRAMEWORK:
            places.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return places


def _are_own(places: Sequence[Place]) -> list[bool]:
    """Code is the job's own if it is of the function's package, or of no library."""
    package = _package(places[0][0]) if places else ""
    found = []
    for frame, _ in places:
        top = _package(frame)
        found.append(top not in _FRAMEWORK and (top == package or not _of_library(frame.f_code)))
    return found


def _short(place: Place) -> str:
    frame, line = place
    code = frame.f_code
    return one_line(f"{code.co_filename.rpartition('/')[2]}:{line} in {code.co_name}", 100)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _package(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]


def _of_library(code: CodeType) -> bool:
    return code.co_filename.startswith("<frozen ") or any(part in code.co_filename for part in _LIBRARIES)


# -- the traceback -----------------------------------------------------------------------------------------------------


def _trace_lines(error: BaseException, most: int, secrets: Sequence[str]) -> list[str]:
    causes = list(_causes(error))
    lines = _frame_lines(error, int(most * OWN_SHARE) if causes else most)
    left = most - _size(lines)
    for relation, cause in causes:
        heading = one_line(f"{relation} {_type_and_message(cause, secrets)}", MAX_LINE_CHARS)
        more = [heading, *_frame_lines(cause, left - _size([heading]))]
        if _size(more) > left:
            break
        lines += more
        left -= _size(more)
    return lines


def _causes(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """What it was raised from, or while handling, and so on; of a group its parts."""
    if isinstance(error, BaseExceptionGroup):
        for number, part in enumerate(error.exceptions[:MAX_CAUSES], 1):
            yield f"{number} of {len(error.exceptions)}:", part
        return
    for _ in range(MAX_CAUSES):
        if error.__cause__ is not None:
            relation, error = "caused by", error.__cause__
        elif error.__context__ is not None and not error.__suppress_context__:
            relation, error = "while handling", error.__context__
        else:
            return
        yield relation, error


def _frame_lines(error: BaseException, most: int) -> list[str]:
    """From the outermost on, as many as fit from the innermost."""
    places = _places(error.__traceback__)
    blocks = _blocks(places, _are_own(places))
    taken: list[list[str]] = []
    left = most
    while blocks:
        block = blocks[-1][1]
        if _size(block) + _size(["... 10000 outer frames"]) > left:
            outer = sum(count for count, _ in blocks)
            taken.append([f"... {outer} outer frame{'s' if outer > 1 else ''}"])
            break
        left -= _size(block)
        taken.append(block)
        blocks.pop()
    return [line for block in reversed(taken) for line in block]


def _blocks(places: Sequence[Place], own: Sequence[bool]) -> list[tuple[int, list[str]]]:
    """How many frames each stands for, and its lines: one frame of the job's, or those of libraries between two."""
    blocks: list[tuple[int, list[str]]] = []
    libraries: list[Place] = []
    for place, is_own in zip(places, own, strict=True):
        if not is_own:
            libraries.append(place)
            continue
        if libraries:
            blocks.append((len(libraries), [_of_libraries(libraries)]))
            libraries = []
        blocks.append((1, _own_frame(place)))
    if libraries:
        blocks.append((len(libraries), [_of_libraries(libraries)]))
    return blocks


def _own_frame(place: Place) -> list[str]:
    frame, line = place
    code = frame.f_code
    path = code.co_filename
    path = path if len(path) <= MAX_PATH_CHARS else f"...{path[-MAX_PATH_CHARS:]}"
    lines = [one_line(f'File "{path}", line {line}, in {code.co_name}', 2 * MAX_PATH_CHARS)]
    source = one_line(linecache.getline(code.co_filename, line, frame.f_globals), MAX_SOURCE_CHARS)
    return [*lines, f"  {source}"] if source else lines


def _of_libraries(places: Sequence[Place]) -> str:
    names = list(dict.fromkeys(_package(frame) or "?" for frame, _ in places))
    shown = ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
    frames = f"{len(places)} frame{'s' if len(places) > 1 else ''}"
    return one_line(f"... {frames} of {shown}, down to {_short(places[-1])}", MAX_SOURCE_CHARS)


def _size(lines: Sequence[str]) -> int:
    """As they stand in the text, with what is put in front of each, and its end."""
    return sum(len(line) + 3 for line in lines)
