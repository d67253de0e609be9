"""Requests of HTTP: valid ones of every route, from the OpenAPI document and the dashboard's own routes and forms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.dashboard.site import DashboardSettings, add_dashboard
from pinlater.http.openapi import openapi_document
from pinlater.http.site import HttpSettings, make_app
from tests.fuzz.bytes_changed import by_words, changed_bytes, changed_json
from tests.fuzz.messages import QUEUE

VALUES = {
    "queue": QUEUE,
    "descriptor": f"{QUEUE}:s1:p1:1790000000000001",
    "job_descriptor": f"{QUEUE}:s1:p1:1790000000000001",
    "claim": "memory:1:1790000000000:1:me",
    "claim_descriptor": "memory:1:1790000000000:1:me",
    "cron": "30 3 * * *",
    "timezone": "Europe/Berlin",
    "continuation": "0",
    "filter": f"queue:{QUEUE} state:ready",
    "q": f"queue:{QUEUE} state:ready",
    "name": "nightly",
    "password": "word",
    "item": "1",
    "number": "1",
    "what": "payload",
    "csrf": "{csrf}",
}
"""What a parameter or a field needs to mean something; others are `1`."""

_PASSWORD = "X-Admin-Password: word"
PASSWORD_LINE = f"{_PASSWORD}\r\n".encode()
_OF_A_BROWSER = "Cookie: {cookie}\r\nSec-Fetch-Site: same-origin\r\nAccept: text/html"
_PARAMETER = re.compile(r"\{(\w+)[^}]*\}")
_FIELD = re.compile(r'name="([a-z_]+)"')
_DEEPEST = 6


def requests() -> Iterator[bytes]:
    """Each operation of the document, with its whole form and with what it must have; each page and form."""
    document = openapi_document()
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            query = "&".join(
                f"{each['name']}={_parameter(document, each)}"
                for each in operation.get("parameters", ())
                if each["in"] == "query"
            )
            target = _filled(path) + (f"?{query}" if query else "")
            schema = _schema_of(operation)
            if schema is None:
                yield _request(verb.upper(), target, [_PASSWORD])
                yield _request(verb.upper(), _filled(path), [_PASSWORD])
            for whole in (True, False) if schema is not None else ():
                body = json.dumps(_sample(document, schema, whole)).encode()
                yield _request(verb.upper(), target, [_PASSWORD, "Content-Type: application/json"], body)
    yield from _pages()


def _pages() -> Iterator[bytes]:
    fields = _fields_of_forms()
    form = "&".join(f"{name}={VALUES.get(name, '1')}" for name in fields).encode()
    for verb, path in _routes():
        if path.startswith("/dashboard") and verb in ("GET", "POST"):
            if verb == "GET":
                yield _request(
                    "GET", _filled(path) + "?q=queue:mail&minutes=60&page=1&next=/dashboard", [_OF_A_BROWSER]
                )
            else:
                head = [_OF_A_BROWSER, "Content-Type: application/x-www-form-urlencoded"]
                yield _request("POST", _filled(path), head, b"csrf={csrf}&" + form)
                yield _request("POST", _filled(path), head, b"csrf={csrf}")
    login = b"password=word&source=me&next=/dashboard&csrf={csrf}"
    yield _request("POST", "/login", ["Content-Type: application/x-www-form-urlencoded", _OF_A_BROWSER], login)
    yield _request("GET", "/v1/events?queues=mail&jobs=" + VALUES["descriptor"], [_PASSWORD])


def _routes() -> list[tuple[str, str]]:
    app = make_app(AsyncClient("127.0.0.1:9", tls=False, token=""), HttpSettings(pages="/dashboard"))
    add_dashboard(app, DashboardSettings())
    return sorted({(each.method, each.resource.canonical) for each in app.router.routes() if each.resource is not None})


def _fields_of_forms() -> list[str]:
    """The names of the fields in all templates."""
    texts = [each.read_text() for each in files("pinlater.dashboard").joinpath("templates").iterdir() if each.is_file()]
    return sorted({name for text in texts for name in _FIELD.findall(text)} - {"csrf"})


def _filled(path: str) -> str:
    return _PARAMETER.sub(lambda found: VALUES.get(found[1], "1"), path)


def _request(verb: str, target: str, headers: list[str], body: bytes = b"") -> bytes:
    lines = [f"{verb} {target} HTTP/1.1", "Host: localhost", *headers]
    if body or verb != "GET":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _schema_of(operation: Mapping[str, Any]) -> Any:
    content = operation.get("requestBody", {}).get("content", {})
    return next((each["schema"] for each in content.values()), None)


def _parameter(document: Mapping[str, Any], parameter: Mapping[str, Any]) -> str:
    value = _sample(document, parameter.get("schema", {}), True, parameter["name"])
    value = value[0] if isinstance(value, list) and value else value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sample(document: Mapping[str, Any], schema: Any, whole: bool, name: str = "", depth: int = 0) -> Any:
    """A value of a schema."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return None
    if "$ref" in schema:
        return _sample(
            document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], whole, name, depth + 1
        )
    for key in ("allOf", "anyOf", "oneOf"):
        if key in schema:
            return _sample(document, schema[key][0], whole, name, depth + 1)
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            needed = schema.get("required", ())
            named = schema.get("properties", {})
            made = {
                key: _sample(document, each, whole, key, depth + 1)
                for key, each in named.items()
                if whole or key in needed
            }
            if whole and isinstance(schema.get("additionalProperties"), dict):
                made["x"] = _sample(document, schema["additionalProperties"], whole, name, depth + 1)
            return made
        case "array":
            return [_sample(document, schema.get("items"), whole, name, depth + 1)] if whole else []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return VALUES.get(name, "word")


@cache
def _targets() -> tuple[bytes, ...]:
    return tuple(each.partition(b"\r\n")[0].rpartition(b" ")[0] for each in requests())


_TEXTS = by_words(
    (
        *(b"%00", b"%ff", b"%zz", b"%2F", b"../", b"?", b"&", b"=", b"+", b"#", b"//", b"{", b"}", b"*", b"\xff", b"0"),
        *(b"-1", b"1e9", b"9" * 30, b"nan", b"true", b"wait_ms=1", b"continuation=x", b"limit=0", b"page=99999999999"),
        *(b"encoding=base64", b"state:failed", b"age:>3h", b"%F0%9F%98%80", b"%ED%A0%80", b"csrf={csrf}"),
    )
)
_HEADERS = (
    b"Content-Type: application/json",
    b"Content-Type: application/x-www-form-urlencoded; charset=nonsense",
    b"Content-Type: multipart/form-data; boundary=x",
    b"Content-Type: \xff",
    b"Content-Encoding: gzip",
    b"Content-Encoding: deflate",
    b"Transfer-Encoding: chunked",
    b"Expect: 100-continue",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Authorization: Bearer plt_x",
    b"Authorization: Basic \xff",
    b"Cookie: a=b; =; \xff=\xff",
    b"Host: other.example",
    b"Host: [::1",
    b"If-None-Match: *",
    b"Range: bytes=0-",
    b"Accept: \xff",
    b"Accept-Language: ;q=9",
    b"Last-Event-ID: 9" + b"9" * 30,
    b"Idempotency-Key: " + b"x" * 300,
    b"X-PinLater-Source: \xff\x00",
    b"X-Admin-Password: \xc3\xa9",
    b"Upgrade: websocket",
    b"Connection: close",
    b": empty",
    b" folded",
)


def changed_request(data: bytes, dice: Random) -> bytes:
    """With another body, which its length fits mostly, another address, other headers, or other bytes."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    match dice.randrange(10):
        case 0:
            return changed_bytes(data, dice)
        case 1 | 2:
            verb, _, rest = lines[0].partition(b" ")
            address, _, version = rest.rpartition(b" ")
            lines[0] = verb + b" " + _TEXTS(address, dice).replace(b"\r", b"").replace(b"\n", b"") + b" " + version
        case 3:
            lines.insert(dice.randrange(1, len(lines) + 1), dice.choice(_HEADERS))
        case 4:
            lines[0] = dice.choice(_targets()) + b" HTTP/1.1"
        case 5 if len(lines) > 2:
            del lines[dice.randrange(1, len(lines))]
        case _:
            is_form = b"urlencoded" in head
            body = _changed_form(body, dice) if is_form else changed_json(body, dice)
    if dice.random() < 0.95:
        lines = [each for each in lines if not each.startswith(b"Content-Length: ") or b"-1" in each]
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _changed_form(body: bytes, dice: Random) -> bytes:
    """Fields gone, twice, or with another value; the session's own text mostly stays."""
    fields = body.split(b"&")
    at = dice.randrange(len(fields))
    name = fields[at].partition(b"=")[0]
    match dice.randrange(5):
        case 0:
            del fields[at]
        case 1:
            fields.append(fields[at])
        case _ if name != b"csrf":
            value = (
                dice.choice(list(VALUES.values())).encode() if dice.random() < 0.3 else fields[at].partition(b"=")[2]
            )
            fields[at] = name + b"=" + _TEXTS(value, dice)
    return b"&".join(fields)
