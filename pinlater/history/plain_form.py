"""The plain form of a struct: JSON under the names of the interface file, without secrets.

Enums are numbers, as on the wire. Whatever a program wrote as its own (bodies, results, payloads, status texts, log
lines, progress) is a digest, since only its equality is judged; contexts, passwords and hashes of tokens are left out,
and so are reports of workers and metadata of flows, which change no job. What was not sent is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any

from pinlater.wire.interface import LIST, MAP, MISSING, SET, SIGNATURES, STRING, Field, Layout, Node

_LEFT_OUT = {"context", "metadata", "password", "tokenHash"}
_LEFT_OUT_STRUCTS = {"WorkerReport"}
_TEXTS_OF_PROGRAMS = {"appendCustomStatus", "customStatus", "prependCustomStatus", "text", "url"}
_DIGITS = 16

Form = Callable[[Any], Any]


def digest(content: bytes | str) -> str:
    """What stands for a body or a text in a history: equal for equal ones, and "" for an empty one.

    >>> digest(b"resize 5.jpg")
    'sha256:b97bd944f7280674'
    """
    if not content:
        return ""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return f"sha256:{sha256(raw).hexdigest()[:_DIGITS]}"


def plain_arguments(method: str, args: Any) -> dict[str, Any]:
    """The arguments of a call, as a client or a server has them."""
    return _struct(SIGNATURES[method].args)(args)  # type: ignore[no-any-return]


def plain_answer(method: str, success: Any) -> Any:
    """What a method returned, in the form in which the wire has it; None for nothing."""
    field = SIGNATURES[method].result.fields.get(0)
    if field is None or success is None:
        return None
    form = _form(field.node, field.name)
    return success if form is None else form(success)


@cache
def _struct(layout: Layout) -> Form:
    fields = [
        (field.attribute, field.name, _form(field.node, field.name))
        for field in layout.fields.values()
        if not _is_left_out(field)
    ]

    def form(value: Any) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for attribute, name, inner in fields:
            sent = getattr(value, attribute, None)
            if sent is not None and sent is not MISSING:
                plain[name] = sent if inner is None else inner(sent)
        return plain

    return form


def _is_left_out(field: Field) -> bool:
    struct = field.node.struct
    return field.name in _LEFT_OUT or (struct is not None and struct.name in _LEFT_OUT_STRUCTS)


def _form(node: Node, name: str) -> Form | None:
    """What makes the plain form of a value; None: it is that."""
    if node.struct is not None:
        return _struct(node.struct)
    if node.ttype == STRING:
        return digest if not node.text or name in _TEXTS_OF_PROGRAMS else None
    if node.ttype in (LIST, SET):
        assert node.value is not None
        return _list(_form(node.value, name))
    if node.ttype == MAP:
        assert node.value is not None
        return _map(_form(node.value, name))
    return None


def _list(inner: Form | None) -> Form:
    return list if inner is None else lambda values: [inner(each) for each in values]


def _map(inner: Form | None) -> Form:
    """The keys of an object are texts; the encoder sees to that."""
    return dict if inner is None else lambda values: {key: inner(each) for key, each in values.items()}
