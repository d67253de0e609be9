"""Applets: what makes the payloads of a child stage's items out of an item of its parent that has succeeded."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jmespath
import msgspec
import structlog
from jmespath.exceptions import JMESPathError
from jmespath.visitor import TreeInterpreter

from pinlater.errors import RequestInvalid
from pinlater.job_body import unreadable_text
from pinlater.model.flow_words import Applet, AppletKind

_log = structlog.get_logger("pinlater.flows")

MAX_CHILDREN = 1_000
MAX_CHILD_BYTES = 64 * 1024
MAX_STEPS = 500_000
"""Of one evaluation of an expression: visits of its parts, and values that these make."""

_CHARS_PER_STEP = 8
_MAKERS = {"multi_select_list", "multi_select_dict", "flatten", "function_expression"}
"""The parts of an expression that make a value larger than what they are given."""


class AppletFailed(Exception):
    """The children cannot be made; the message says why."""


def children_of(applet: Applet, payload: bytes, result: bytes) -> list[bytes]:
    """The payloads, in order, each JSON. AppletFailed, whatever goes wrong: an item is never held up by its expression,
    nor are those beside it.
    """
    try:
        if applet.kind is AppletKind.PASS:
            items = [b'{"payload":%b,"result":%b}' % (payload, result)]
        elif applet.kind is AppletKind.LIST:
            items = _listed(result)
        else:
            items = _mapped(applet.expression, payload, result)
    except AppletFailed:
        raise
    except RecursionError:
        raise AppletFailed(f"{applet.expression}: it, or what it is given, is nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AppletFailed(f"the result is no JSON: {unreadable_text(error)}") from None
    except JMESPathError as error:
        raise AppletFailed(f"{applet.expression}: {error}") from None
    except Exception as error:
        _log.warning("expression_failed", expression=applet.expression, exc_info=error)
        raise AppletFailed(f"{applet.expression}: its values do not go together, or one is out of range") from None
    if len(items) > MAX_CHILDREN:
        raise AppletFailed(f"it makes {len(items)} items of one; allowed: {MAX_CHILDREN}")
    longest = max(map(len, items), default=0)
    if longest > MAX_CHILD_BYTES:
        raise AppletFailed(f"an item has {longest} bytes; allowed: {MAX_CHILD_BYTES}")
    return items


def _listed(result: bytes) -> list[bytes]:
    if msgspec.json.decode(result) is None:
        return []
    if not result.lstrip().startswith(b"["):
        return [result]
    return [bytes(each) for each in msgspec.json.decode(result, type=list[msgspec.Raw])]


def _mapped(expression: str, payload: bytes, result: bytes) -> list[bytes]:
    parent = {"payload": msgspec.json.decode(payload), "result": msgspec.json.decode(result)}
    bounded = _Bounded()
    made = bounded.visit(compiled(expression).parsed, parent)
    bounded.weigh(made)
    items = made if isinstance(made, list) else [] if made is None else [made]
    return [msgspec.json.encode(item) for item in items[: MAX_CHILDREN + 1]]


class _Bounded(TreeInterpreter):  # type: ignore[misc]
    """Evaluates an expression, and gives up when it takes too long or grows too large: a short one can do both."""

    def __init__(self) -> None:
        super().__init__()
        self._left = MAX_STEPS

    def visit(self, node: Any, *arguments: Any, **values: Any) -> Any:
        self._spend(1)
        made = super().visit(node, *arguments, **values)
        if node["type"] in _MAKERS:
            self.weigh(made)
        return made

    def weigh(self, value: Any) -> None:
        """Charge for a value as if it were written out. AppletFailed."""
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, str):
                self._spend(1 + len(each) // _CHARS_PER_STEP)
            elif isinstance(each, (list, dict)):
                self._spend(1 + len(each))
                waiting.extend(each.values() if isinstance(each, dict) else each)

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise AppletFailed("the expression takes too long, or makes too much")


@lru_cache(maxsize=1_000)
def compiled(expression: str) -> Any:
    """Errors of jmespath: it is none."""
    return jmespath.compile(expression)


def check_expression(stage: str, expression: str) -> None:
    """RequestInvalid."""
    try:
        compiled(expression)
    except Exception as error:
        told = error if isinstance(error, JMESPathError) else "nested too deep, or with what is no number"
        raise RequestInvalid.of(f"the expression of stage {stage}", expression, f"JMESPath ({told})") from None
