"""The status page of a cluster: one HTML page that renews itself, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from pinlater.printable import printable

Row = Sequence[str]
COUNTS = ("ready", "scheduled", "in_progress", "succeeded", "failed")
RATES = ("enqueued", "dequeued", "succeeded", "failed", "retried")

_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>PinLater</title><meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width">
<style>
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;color:#1c2330;background:#fbfbfc}
h1{font-size:1.3em}h2{font-size:1.05em;margin:1.8em 0 .4em}
table{border-collapse:collapse;width:100%;background:#fff}
th,td{padding:.3em .7em;text-align:left;border-bottom:1px solid #e4e7ec;vertical-align:top}
th{color:#5a6577;font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.good{color:#146c2e}.bad{color:#b3261e;font-weight:600}.quiet{color:#5a6577}
</style></head><body>
"""


def cluster_page(status: Mapping[str, Any]) -> str:
    """`status` is a model.ClusterStatus as JSON holds it."""
    now_ms = status["now_ms"]
    shards, servers = status["shards"], status["servers"]
    out = [shard["id"] for shard in shards if shard["state"] != "in"]
    full = [shard["id"] for shard in shards if shard["is_full"]]
    bad = [f"shards {word}: {', '.join(ids)}" for word, ids in (("out", out), ("full", full)) if ids]
    verdict = _bad("; ".join(bad)) if bad else _good("well")
    return "".join(
        (
            _HEAD,
            f'<h1>PinLater: {verdict}</h1><p class="quiet">{_time(now_ms)}, renewed every 5 s. ',
            'Also here: <a href="/metrics">/metrics</a>, <a href="/readyz">/readyz</a>, ',
            '<a href="/livez">/livez</a>.</p>',
            _table("Shards", ("shard", "state", "store", "good calls", "clock", "maintained by"), map(_shard, shards)),
            _table(
                "Queues",
                ("queue", "priority", *(f">{name}" for name in COUNTS), ">oldest", ">per second", "remarks"),
                (row for queue in status["queues"] for row in _queue(queue, now_ms)),
            ),
            _table(
                "Servers",
                ("server process", "address", "since", "seen", "state", "maintains", ">overflow"),
                (_server(server, now_ms) for server in servers),
            ),
            "</body></html>\n",
        )
    )


def _shard(shard: Mapping[str, Any]) -> Row:
    word = "full" if shard["is_full"] else shard["state"]
    state = _good(word) if word == "in" else _bad(word)
    if shard["dequeue_only"]:
        state += " (takes no new jobs)"
    if shard["trouble"]:
        state += f'<br><span class="quiet">{_text(shard["trouble"])}</span>'
    calls = f"{shard['good']} of {shard['samples']}"
    return (
        _text(shard["id"]),
        state,
        _text(shard["store"]),
        calls,
        _skew(shard["skew_ms"]),
        _text(shard["maintained_by"]),
    )


def _queue(queue: Mapping[str, Any], now_ms: int) -> Iterable[Row]:
    rates = ", ".join(f"{name} {rate:.1f}" for name in RATES if (rate := queue["rates"].get(name, 0.0)) >= 0.05)
    for index, level in enumerate(queue["levels"]):
        oldest = "" if level["oldest_ready_ms"] is None else _age(now_ms - level["oldest_ready_ms"])
        first = index == 0
        yield (
            _text(queue["name"]) if first else "",
            str(level["priority"]),
            *(f"{level[name]:,}" for name in COUNTS),
            oldest,
            _text(rates) if first else "",
            _text(", ".join(queue["flags"])) if first else "",
        )


def _server(server: Mapping[str, Any], now_ms: int) -> Row:
    state = _good("ready") if server["is_ready"] else _bad("not ready")
    if server["trouble"]:
        state += f" {_text(server['trouble'])}"
    if server["shards_out"]:
        state += f'<br><span class="quiet">sees out: {_text(", ".join(server["shards_out"]))}</span>'
    if server["shards_full"]:
        state += f'<br><span class="quiet">sees full: {_text(", ".join(server["shards_full"]))}</span>'
    overflow = server["overflow_jobs"]
    return (
        _text(f"{server['server']}/{server['process']}"),
        _text(server["address"]),
        _time(server["started_ms"]),
        f"{_age(now_ms - server['seen_ms'])} ago",
        state,
        _text(", ".join(server["maintains"])),
        "" if overflow is None else f"{overflow:,}",
    )


def _table(title: str, columns: Sequence[str], rows: Iterable[Row]) -> str:
    """A column whose name begins with > holds numbers. The cells are HTML already."""
    classes = [' class="n"' if column.startswith(">") else "" for column in columns]
    head = "".join(f"<th{css}>{_text(column.lstrip('>'))}</th>" for css, column in zip(classes, columns, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{css}>{cell}</td>' for css, cell in zip(classes, row, strict=True))}</tr>" for row in rows
    )
    body = body or f'<tr><td colspan="{len(columns)}" class="quiet">none</td></tr>'
    return f"<h2>{title}</h2><table><tr>{head}</tr>{body}</table>"


def _text(text: str) -> str:
    """Of whoever wrote it: neither markup, nor characters that hide or turn around what stands beside them."""
    return escape(printable(text))


def _good(text: str) -> str:
    return f'<span class="good">{_text(text)}</span>'


def _bad(text: str) -> str:
    return f'<span class="bad">{_text(text)}</span>'


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _age(ms: int) -> str:
    """
    >>> _age(1500), _age(90_000), _age(7_300_000), _age(200_000_000)
    ('1.5 s', '1.5 min', '2.0 h', '2.3 d')
    """
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= size:
            return f"{ms / size:.1f} {unit}"
    return f"{max(ms, 0) / 1000:.1f} s"


def _skew(ms: int) -> str:
    return "agrees" if abs(ms) < 50 else f"{ms:+,} ms"
