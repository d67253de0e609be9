"""Applets: what makes the payloads of a child stage's items out of an item of its parent that has succeeded."""

from __future__ import annotations

import msgspec
import structlog
from jmespath.exceptions import JMESPathError, JMESPathTypeError

from pinlater.errors import RequestInvalid
from pinlater.flows.budgets import Budget, TooDear
from pinlater.flows.ends import MadeChildren, UnmadeChildren
from pinlater.flows.expressions import COMPILED, evaluate
from pinlater.job_body import unreadable_text
from pinlater.model.flow_words import Applet, AppletKind, Stage

_log = structlog.get_logger("pinlater.flows")

MAX_CHILDREN = 1_000
MAX_CHILD_BYTES = 64 * 1024

_LESS = "make or read less, or let the job of the parent prepare it"


class AppletFailed(Exception):
    """The children cannot be made; the message says why."""


class AppletTooDear(AppletFailed):
    """They can be made with a larger budget at best."""


def make_children(unmade: UnmadeChildren, budget: Budget) -> tuple[list[MadeChildren], bool]:
    """The children of an item, and whether some were too dear for what is left of the budget."""
    made, is_too_dear = [], False
    for place, applet in unmade.applets:
        try:
            made.append(MadeChildren(place, applet, children_of(applet, unmade.payload, unmade.result, budget)))
        except AppletFailed as error:
            is_too_dear |= isinstance(error, AppletTooDear)
            made.append(MadeChildren(place, applet, error=str(error)))
    return made, is_too_dear


def children_of(applet: Applet, payload: bytes, result: bytes, budget: Budget) -> list[bytes]:
    """The payloads, in order, each JSON. AppletFailed, whatever goes wrong: an item is never held up by its expression,
    nor are those beside it.
    """
    try:
        if applet.kind is AppletKind.PASS:
            items = [b'{"payload":%b,"result":%b}' % (payload, result)]
        elif applet.kind is AppletKind.LIST:
            items = _listed(result, budget)
        else:
            items = _mapped(applet.expression, payload, result, budget)
    except TooDear as error:
        raise AppletTooDear(f"{applet.expression or 'its list'}: too dear: {error}. Do: {_LESS}") from None
    except RecursionError:
        raise AppletFailed(f"{applet.expression}: it, or what it is given, is nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AppletFailed(f"the result is no JSON: {unreadable_text(error)}") from None
    except JMESPathError as error:
        raise AppletFailed(f"{applet.expression}: {_mistake(error)}") from None
    except Exception as error:  # its text may quote what the expression was given
        _log.warning("expression_failed", expression=applet.expression, error=type(error).__name__)
        raise AppletFailed(f"{applet.expression}: its values do not go together, or one is out of range") from None
    if len(items) > MAX_CHILDREN:
        raise AppletFailed(f"it makes {len(items)} items of one; allowed: {MAX_CHILDREN}")
    longest = max(map(len, items), default=0)
    if longest > MAX_CHILD_BYTES:
        raise AppletFailed(f"an item has {longest} bytes; allowed: {MAX_CHILD_BYTES}")
    return items


def _mistake(error: JMESPathError) -> str:
    """What is wrong, without the value that it is wrong with: others read it than read payloads and results."""
    if isinstance(error, JMESPathTypeError):
        return f"{error.function_name}() takes {' or '.join(error.expected_types)}, and is given {error.actual_type}"
    return str(error)


def _listed(result: bytes, budget: Budget) -> list[bytes]:
    budget.read_list(result, "reading the result")
    if not result.lstrip().startswith(b"["):
        return [] if msgspec.json.decode(result) is None else [result]
    return [bytes(each) for each in msgspec.json.decode(result, type=list[msgspec.Raw])]


def _mapped(expression: str, payload: bytes, result: bytes, budget: Budget) -> list[bytes]:
    budget.read(payload, "reading the payload")
    budget.read(result, "reading the result")
    parent = {"payload": msgspec.json.decode(payload), "result": msgspec.json.decode(result)}
    made = evaluate(expression, parent, budget)
    items = made if isinstance(made, list) else [] if made is None else [made]
    return [msgspec.json.encode(item) for item in items[: MAX_CHILDREN + 1]]


def check_expression(stage: Stage) -> None:
    """RequestInvalid: the expression that makes its items is none."""
    expression = stage.applet.expression
    if not stage.parent or stage.applet.kind is not AppletKind.MAP or COMPILED.get(expression) is not None:
        return
    try:
        COMPILED.add(expression)
    except Exception as error:
        reason = error if isinstance(error, JMESPathError) else "nested too deep, or with what is no number"
        raise RequestInvalid.of(f"the expression of stage {stage.name}", expression, f"JMESPath ({reason})") from None
