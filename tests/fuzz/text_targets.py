"""Texts that people and programs write: filters, schedules, expressions, templates, durations, policies, files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from pinlater.access.rules import parse_rules
from pinlater.backends.dynamodb.table_address import parse_address as parse_table_address
from pinlater.backends.redis.address import parse_address as parse_redis_address
from pinlater.client.addresses import parse_target
from pinlater.config.body_rules import parse_rule
from pinlater.config.loader import ConfigInvalid, load
from pinlater.config.stores import parse_store
from pinlater.durations import parse_duration, parse_duration_ms
from pinlater.errors import ContinuationInvalid, RequestInvalid, StoreRefused
from pinlater.flows.applets import AppletFailed, check_expression, children_of
from pinlater.flows.budgets import Budget
from pinlater.flows.flow_limits import json_mistake
from pinlater.history.history_files import HistoryInvalid, read_history
from pinlater.job_filters.filter_parser import FilterError, parse_filter, pieces
from pinlater.model import JobFilter, JobState, is_descriptor, parse_descriptor
from pinlater.model.flow_words import Applet, AppletKind, Stage
from pinlater.model.group_template import group_of, groups_possible
from pinlater.queues.file import read_layers
from pinlater.service.job_queries import read_continuation, write_continuation
from pinlater.service.searches import Mark, read_mark, write_mark
from pinlater.shards.scan import Place
from pinlater.sizes import parse_size
from pinlater.timetable import CronTimetable, TimetableInvalid, cron_warnings, cron_words, is_every_hour
from pinlater_workers.app.settings import read_file
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs.retry_text import parse_policy
from pinlater_workers.tracing import TRACEPARENT, read_trace
from tests.fuzz.bytes_changed import by_words
from tests.fuzz.readers import Reader, target_of
from tests.fuzz.stored_targets import NOW_MS

_STEPS = 20_000
"""Of an expression: a server gives an item 25 times as many, which takes a quarter of a second."""


def _text(read: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: read(data.decode())


def _words_of(data: bytes, most: int) -> list[str]:
    """The parts between lines, empty ones where there are too few."""
    parts = data.decode().split("\n", most - 1)
    return parts + [""] * (most - len(parts))


def _filter(line: str) -> None:
    pieces(line)
    found = parse_filter(line)
    _ = found.text, found.phases, found.named_queues, found.descriptors


def _cron(data: bytes) -> None:
    expression, zone = _words_of(data, 2)
    cron_warnings(expression)
    cron_words(expression)
    is_every_hour(expression)
    times = CronTimetable(expression, zone or "UTC")
    times.after(NOW_MS)
    times.latest(NOW_MS)


def _mapped(data: bytes) -> None:
    """An expression, a payload and a result, which are JSON, as nothing else is stored."""
    expression, payload, result = (each.encode() for each in _words_of(data, 3))
    applet = Applet(AppletKind.MAP, expression.decode())
    check_expression(Stage("s", "j", "q", "p", applet))
    if not json_mistake(payload) and not json_mistake(result):
        children_of(applet, payload, result, Budget(_STEPS))


def _listed(data: bytes) -> None:
    if not json_mistake(data):
        children_of(Applet(AppletKind.LIST), b"1", data, Budget(_STEPS))
        children_of(Applet(AppletKind.PASS), b"1", data, Budget(_STEPS))


def _template(data: bytes) -> None:
    """A template that is taken makes a group of any payload, and says which groups it can make."""
    template, payload = _words_of(data, 2)
    groups_possible(template)
    group_of(template, payload.encode())


def _continuations(text: str) -> None:
    """Each list has its own; ContinuationInvalid of one says nothing of the other."""
    try:
        read_mark(text, NOW_MS, 3, ("meant",))
    except ContinuationInvalid:
        read_continuation(_FILTER, text, NOW_MS)


def _descriptor(text: str) -> None:
    parse_descriptor(text)
    is_descriptor(text)


def _in_file(read: Callable[[Path], Any], name: str = "file.toml") -> Callable[[bytes], Any]:
    def from_file(data: bytes) -> Any:
        path = _folder() / name
        path.write_bytes(data)
        return read(path)

    return from_file


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _folder() -> Path:
    """One for all files of this process."""
    if not _FOLDERS:
        _FOLDERS.append(tempfile.TemporaryDirectory(prefix="pinlater-fuzz-"))
    return Path(_FOLDERS[0].name)


def _loaded(path: Path) -> None:
    load({"config": str(path)}, {})


def _history(path: Path) -> None:
    for _ in read_history(path):
        pass


_CONF = Path(__file__).parents[2] / "conf"
_RULES = b"""[roles.producer]
may = ["enqueue", "read"]
queues = ["mail-*"]
groups = ["", "acme*"]
bodies = false

[[rules]]
who = ["cert:*.mail.example", "token:web"]
roles = ["producer"]

[[rules]]
who = ["anonymous"]
from = ["10.1.0.0/16"]
may = ["enqueue"]
"""
_HISTORY = b"""{"pinlater_history":1}
{"call":1,"by":"a","at_ms":1.5,"method":"enqueueJobs","args":{"queue":"mail"}}
{"call":1,"at_ms":2.5,"answer":["mail:s1:p1:1790000000000001"]}
{"call":2,"at_ms":2.5,"error":{"name":"QueueNotFound"}}
{"note":"lost","at_ms":3,"shard":"1"}
"""


def _of_conf(*names: str) -> tuple[bytes, ...]:
    """Files that operators begin with, without their comments."""
    found = ((_CONF / name).read_bytes().split(b"\n") for name in names)
    return tuple(b"\n".join(line for line in lines if line and not line.startswith(b"#")) for lines in found)


_FILTER = JobFilter("mail", JobState.FAILED)
_CONTINUATIONS = (
    b"0",
    write_continuation(_FILTER, NOW_MS, Place(NOW_MS, "1", 1_790_000_000_000_001)).encode(),
    write_mark(Mark(0, None, NOW_MS), ("meant",)).encode(),
)
TEXTS = (
    Reader(
        "a filter",
        _text(_filter),
        (
            b'queue:mail -status:"a b" state:failed,ready age:>3h priority:1,2',
            b"type:thumbnail tag:eu attempts:>3 updated:<3h",
            b"mail:s1:p1:1790000000000001",
        ),
        (FilterError,),
        True,
    ),
    Reader(
        "a schedule's times",
        _cron,
        (b"30 3 * * 1-5\nEurope/Berlin", b"*/15 9-17/2 1,15 * *\nUTC", b"@hourly", b"0 0 L * 5#2"),
        (TimetableInvalid,),
        True,
    ),
    Reader(
        "an expression of a flow",
        _mapped,
        (
            b'result[?a > `1`].{id: a, n: length(b)}\n{"u":1}\n[{"a":2,"b":"xyz"}]',
            b'map(&join(`"-"`, [@, @]), result)\n1\n["a","b"]',
            b"sum(result)\n1\n[1,2.5]",
            b'sort_by(result, &a)[*].a | [0]\n1\n[{"a":2}]',
        ),
        (RequestInvalid, AppletFailed),
        True,
    ),
    Reader("a list of a flow", _listed, (b'[1,{"a":[]}]', b"null", b" [[1]]"), (AppletFailed,), True),
    Reader("a template of groups", _template, (b'eu-{order.account}\n{"order":{"account":7}}',), (ValueError,), True),
    Reader("a continuation", _text(_continuations), _CONTINUATIONS, (ContinuationInvalid,), True),
    Reader("a descriptor", _text(_descriptor), (b"mail:s1:p1:1790000000000001",), (), True),
    Reader("a duration", _text(parse_duration), (b"1h30m", b"90s", b"1.5d"), (ValueError,), True),
    Reader(
        "a duration within bounds",
        _text(lambda text: parse_duration_ms(text, 1, 10**9, bare="s")),
        (b"1h30m", b"90"),
        (ValueError,),
        True,
    ),
    Reader("a size", _text(parse_size), (b"16MiB", b"1GiB", b"10"), (ValueError,), True),
    Reader(
        "a retry policy",
        _text(parse_policy),
        (b"exponential first=1s factor=3 cap=1h", b"delays 1s 1m 1h jitter=0.2"),
        (ValueError, ConfigurationError),
        True,
    ),
    Reader(
        "a trace",
        _text(lambda text: read_trace({TRACEPARENT: text})),
        (b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",),
        (),
        True,
    ),
    Reader("an address", _text(parse_target), (b"dns:pinlater.local:9010", b"[::1]:9010"), (ValueError,), True),
    Reader(
        "a store",
        _text(parse_store),
        (b"2=redis://127.0.0.1:6379/0", b"mysql+pymysql://u:p@h:3306/d", b"redis+cluster://a,b/?shards=16"),
        (ValueError,),
        True,
    ),
    Reader(
        "an address of Redis",
        _text(parse_redis_address),
        (b"redis+sentinel://u:p@a:1,b/name/3", b"redis+cluster://a,b/?shard=3", b"rediss://h"),
        (RequestInvalid, ValueError),
        True,
    ),
    Reader(
        "an address of a table",
        _text(parse_table_address),
        (b"dynamodb://eu-west-1/jobs?endpoint=http://127.0.0.1:1",),
        (RequestInvalid, StoreRefused, ValueError),
        True,
    ),
    Reader(
        "a rule of bodies",
        _text(parse_rule),
        (b"s3: size > 4KiB and delay > 10m", b"disk: queue mail-* and caller web-*"),
        (ValueError,),
        True,
    ),
)
FILES = (
    Reader(
        "the configuration",
        _in_file(_loaded),
        _of_conf("sqlite.toml", "redis.toml", "postgresql.toml"),
        (ConfigInvalid,),
    ),
    Reader("rules of access", lambda data: parse_rules(data, "rules.toml"), (_RULES,), (ConfigInvalid,)),
    Reader("the file of queues", _in_file(read_layers), _of_conf("queues.toml"), (ConfigInvalid,)),
    Reader("the configuration of workers", _in_file(read_file), _of_conf("jobs.toml"), (ConfigurationError,)),
    Reader("a history", _in_file(_history, "1.jsonl"), (_HISTORY,), (HistoryInvalid,)),
)
_FILTER_WORDS = """queue: state: status: -status: age: priority: tag: type: error: id: attempts: group: > < * , " \\"""
_EXPRESSION_WORDS = """&a | || && ! == `1` 'x' sort_by( map( join( sum( max_by( keys( to_number( length( [? [*]
[::2] .{a: ( ) [ ] { } @"""
_OTHER_WORDS = """0 1 59 */5 1-5 L # MON @daily Europe/Berlin America/New_York UTC h m s ms d KiB GiB -1 1e9 0x1 nan inf
99999999999999999999 \u0663 \u2028 \U0001f600 redis:// mysql+pymysql:// [::1] % %2F %zz : / ? = & first= cap="""
TEXT_WORDS = [word.encode() for word in f"{_FILTER_WORDS} {_EXPRESSION_WORDS} {_OTHER_WORDS}".split()]
FILE_WORDS = (
    *(b"[", b"]", b"[[", b"]]", b"= ", b'""', b"{}", b"[]", b"true", b"1979-05-27T07:32:00Z", b"1e400", b"nan", b"-1"),
    *(b"'''", b'"""', b"\\u0000", b"\\ud800", b"a.b.c", b"\n", b"#", b"{a = 1}", b"99999999999999999999", b"0x1"),
    *(b"[queues.mail]\n", b"[roles.viewer]\n", b"[[rules]]\n", b"[jobs.x]\n", b"[worker]\n", b"stores = "),
)


def _changed_file(data: bytes, dice: Random) -> bytes:
    """Lines gone, twice, in another order, or with another value; else by words."""
    lines = data.split(b"\n")
    at = dice.randrange(len(lines))
    match dice.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(dice.randrange(len(lines) + 1), lines[at])
        case 2 | 3 if b"=" in lines[at]:
            lines[at] = lines[at].partition(b"=")[0] + b"= " + dice.choice(FILE_WORDS)
        case _:
            return _by_file_words(data, dice)
    return b"\n".join(lines)


_by_file_words = by_words(FILE_WORDS)
TARGETS = (
    target_of("texts", "texts that people and programs write", TEXTS, by_words(TEXT_WORDS), TEXT_WORDS, 2_000),
    target_of("files", "files of configuration, rules and histories", FILES, _changed_file, FILE_WORDS),
)
