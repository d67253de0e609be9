"""The OpenAPI 3.1 document of the HTTP interface, made of the table of routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from typing import Any, get_args

import msgspec

from pinlater.http.encodings import Encoding
from pinlater.http.flow_forms import FLOW_ID, NAME
from pinlater.http.model_map import words
from pinlater.http.problems import CONTENT_TYPE, Problem
from pinlater.http.route import IDEMPOTENCY_HEADER, JSON, PASSWORD_HEADER, Route
from pinlater.http.routes import ROUTES
from pinlater.model import QUEUE_NAME_PATTERN
from pinlater.model.word_enum import WordEnum
from pinlater.wire.methods import Access

_DESCRIPTION = """The calls of PinLater as JSON. Each request makes one call, with the meaning and the limits of the
call of the Thrift interface that `x-pinlater-method` names; docs/http.md says what is particular to HTTP."""

_ADMIN_PASSWORD = "admin_password"
_TOKEN = "token"
_SCHEMES = {
    _TOKEN: {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `pinlater token create`. Without one the caller is anonymous, and may do what the"
        " rules grant to that.",
    },
    _ADMIN_PASSWORD: {
        "type": "apiKey",
        "in": "header",
        "name": PASSWORD_HEADER,
        "description": "For callers whose roles do not allow the call.",
    },
}
_PATH_PARAMETERS = {
    "queue": (f"^{QUEUE_NAME_PATTERN}$", "A queue."),
    "target": (f"^(@defaults|{QUEUE_NAME_PATTERN})$", 'A queue, or "@defaults" for what is set for all queues.'),
    "descriptor": (r"^[A-Za-z0-9_-]+:s[A-Za-z0-9]+:p[0-9]+:[0-9]+$", "A job, as an enqueue or a dequeue named it."),
    "flow": (f"^{FLOW_ID}$", "A flow, as its creation named it."),
    "item": (r"^[0-9]{1,16}$", "The number of an item."),
    "job": (f"^{FLOW_ID}(:{NAME})?$", "A tree of jobs; or, with a colon and its name behind, a job of it."),
    "worker": (r"^[!-~]{1,200}$", "The name of a worker, for claims and failures."),
    "assignment": (r"^[A-Za-z0-9_-]{1,2000}$", "An assignment, as it was answered."),
    "schedule": (r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}$", "A schedule."),
    "shard": (r"^[A-Za-z0-9]{1,16}$", "A shard."),
    "group": ("^[^\\x00-\\x1f]+$", "A group of the queue, or a pattern in which * stands for any text."),
    "alarm": (r"^[a-z_]{1,40}$", "The condition of alarms, as no_worker."),
    "token": (r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$", "The name of a token."),
}
_ENUMS = {frozenset(words(kind).values()): kind.__name__ for kind in WordEnum.__subclasses__()}
_ENUMS[frozenset(get_args(Encoding))] = "Encoding"
"""The names of components that are enums, by their words."""

_IN_PATH = re.compile(r"{(\w+)}")
_REF = "#/components/schemas/{name}"


@cache
def openapi_json(prefix: str = "") -> bytes:
    """The document, as it is served below that path."""
    return msgspec.json.format(msgspec.json.encode(openapi_document(prefix=prefix)), indent=2)


def openapi_document(routes: Sequence[Route] = ROUTES, prefix: str = "") -> dict[str, Any]:
    types = {each for route in routes for each in (route.form, route.answer) if each is not None}
    _, schemas = msgspec.json.schema_components([*types, Problem], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.verb.lower()] = _operation(route)
    known = {name: _tidy(each) for name, each in schemas.items()}
    written = msgspec.json.encode([paths, known]).decode()
    known |= {name: each for name, each in _enum_schemas().items() if f'{_REF.format(name=name)}"' in written}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "PinLater",
            "version": metadata.version("pinlater"),
            "description": " ".join(_DESCRIPTION.split()),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": prefix or "/"}],
        "security": [{}, {_TOKEN: []}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(known.items())),
            "responses": {"Problem": _content("The request failed.", CONTENT_TYPE, Problem)},
            "securitySchemes": _SCHEMES,
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "x-pinlater-method": route.method.name,
    }
    if route.method.access is Access.ADMIN_PASSWORD:
        operation["security"] = [{}, {_TOKEN: []}, {_ADMIN_PASSWORD: []}]
    parameters = [*_path_parameters(route.path), *_query_parameters(route)]
    if route.has_idempotency_key:
        parameters.append(_idempotency_key())
    if parameters:
        operation["parameters"] = parameters
    if route.form is not None:
        content = _media(route.form, route.example)
        operation["requestBody"] = {"required": True, "content": {JSON: content}}
    if route.answer is None:
        operation["responses"] = {"204": {"description": "Done."}}
    else:
        operation["responses"] = {str(route.status): _content("The answer.", JSON, route.answer, route.answer_example)}
    operation["responses"]["default"] = {"$ref": "#/components/responses/Problem"}
    return operation


def _path_parameters(path: str) -> Iterable[dict[str, Any]]:
    for name in _IN_PATH.findall(path):
        pattern, description = _PATH_PARAMETERS[name]
        schema = {"type": "string", "pattern": pattern}
        yield {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _query_parameters(route: Route) -> Iterable[dict[str, Any]]:
    if route.query is None:
        return
    _, components = msgspec.json.schema_components([route.query], ref_template=_REF)
    form = components[route.query.__name__]
    for name, schema in form["properties"].items():
        shown = _without_null(_tidy(schema))
        parameter = {"name": name, "in": "query", "required": name in form["required"]}
        if "description" in shown:
            parameter["description"] = shown.pop("description")
        yield {**parameter, "schema": shown}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter that may be left out is never null."""
    if "anyOf" not in schema:
        return dict(schema)
    (known,) = (each for each in schema["anyOf"] if each != {"type": "null"})
    return {**known, **{name: value for name, value in schema.items() if name not in ("anyOf", "default")}}


def _idempotency_key() -> dict[str, Any]:
    return {
        "name": IDEMPOTENCY_HEADER,
        "in": "header",
        "description": "The dedupe key of the job or the flow: a request that is sent again answers with the one that"
        " is there. Of a batch each job has it, with its place.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    }


def _content(
    description: str, content_type: str, answer: type[Any], example: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {"description": description, "content": {content_type: _media(answer, example)}}


def _media(form: type[Any], example: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"schema": _ref(form)} if example is None else {"schema": _ref(form), "example": example}


def _ref(form: type[Any]) -> dict[str, Any]:
    return {"$ref": _REF.format(name=form.__name__)}


def _tidy(schema: Any) -> Any:
    """With descriptions in one line, and with the types of words and of what is in lists, for generators of clients."""
    if isinstance(schema, list):
        return [_tidy(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {name: _tidy(value) for name, value in schema.items()}
    if isinstance(tidy.get("description"), str):
        tidy["description"] = " ".join(tidy["description"].split())
    if "enum" in tidy:
        return _enum(tidy)
    if tidy.get("type") == "array":
        tidy.setdefault("items", {})
    return tidy


def _enum(schema: dict[str, Any]) -> dict[str, Any]:
    """One component for all places with these words, so that generators make one type of it. What else is said of a
    place, as a default, stands beside it.
    """
    name = _ENUMS.get(frozenset(schema["enum"]))
    if name is None or "title" in schema:  # which is a component itself
        return {"type": "string", **schema}
    beside = {key: value for key, value in schema.items() if key not in ("enum", "type")}
    ref = {"$ref": _REF.format(name=name)}
    return {"allOf": [ref], **beside} if beside else ref


def _enum_schemas() -> dict[str, dict[str, Any]]:
    """Those of all enums, with their words in the order of the model."""
    words_by_name = {"Encoding": list(get_args(Encoding))}
    words_by_name |= {kind.__name__: list(words(kind).values()) for kind in WordEnum.__subclasses__()}
    return {name: {"title": name, "type": "string", "enum": found} for name, found in words_by_name.items()}
