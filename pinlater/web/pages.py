"""The status page of a cluster: one HTML page that renews itself, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from pinlater.model import queue_order
from pinlater.printable import printable
from pinlater.schedule import utc_text

Row = Sequence[str]
COUNTS = ("ready", "scheduled", "waiting", "in_progress", "succeeded", "failed", "cancelled")
RATES = ("enqueued", "dequeued", "succeeded", "failed", "retried")

_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>PinLater: {title}</title><meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{style}</style></head><body>
"""
_STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--quiet:#5a6577;--line:#e4e7ec;--paper:#fff;--ground:#fbfbfc;
--good:#146c2e;--bad:#b3261e;--held:#8a5300}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--quiet:#9aa5b5;--line:#2c3442;--paper:#171c25;--ground:#10141b;
--good:#5fd07f;--bad:#ff8a80;--held:#ffc266}a{color:#8ab4f8}}
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;color:var(--ink);
background:var(--ground)}
h1{font-size:1.3em}h2{font-size:1.05em;margin:1.8em 0 .4em}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;background:var(--paper)}
th,td{padding:.3em .7em;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--quiet);font-weight:600;white-space:nowrap}td:first-child{white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.zero{color:var(--quiet)}
.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}.held{color:var(--held);font-weight:600}
.quiet{color:var(--quiet)}
@media(max-width:60em){
body{margin:1em auto;padding:0 .6em}
table,tbody,tr{display:block}tr.head{display:none}
tr{border:1px solid var(--line);border-radius:.4em;margin:0 0 .7em;padding:.3em 0}
td,td.n{display:flex;justify-content:space-between;gap:1em;border:0;padding:.15em .7em;text-align:right}
td::before{content:attr(data-label);color:var(--quiet);text-align:left;flex:none}
td:empty,td.zero{display:none}td:first-child{font-weight:600;white-space:normal}td span{overflow-wrap:anywhere}
td.only{display:block;text-align:left}
}
"""


def cluster_page(status: Mapping[str, Any], api: str = "") -> str:
    """`status` is a model.ClusterStatus as JSON holds it, and with `workers` a model.WorkersPage; `api` is the address
    of the HTTP interface, "" where there is none.
    """
    now_ms = status["now_ms"]
    shards, servers = status["shards"], status["servers"]
    queues = sorted(status["queues"], key=lambda queue: queue_order(queue["name"]))
    troubles = _troubles(shards, servers)
    failed = sum(any(level["failed"] for level in queue["levels"]) for queue in queues)
    verdict = _bad("; ".join(troubles)) if troubles else _good("well")
    noticed = [f"failed jobs in {failed:,} of {len(queues):,} queues"] if failed else []
    paused = sum(queue["pause"] is not None for queue in queues)
    noticed += sorted({server["exposed"] for server in servers} - {""})
    noticed += [f"{paused:,} queue{'' if paused == 1 else 's'} paused"] if paused else []
    return "".join(
        (
            _HEAD.format(title=_text("; ".join(troubles) or "well"), style=_STYLE),
            f'<h1>PinLater: {verdict}</h1><p class="quiet">{_time(now_ms)}, renewed every 5 s. ',
            'Also here: <a href="/metrics">/metrics</a>, <a href="/readyz">/readyz</a>, ',
            '<a href="/livez">/livez</a>',
            _links(api),
            ".</p>",
            f"<p>{_held('; '.join(noticed))}</p>" if noticed else "",
            _table("Shards", ("shard", "state", "store", "good calls", "clock", "maintained by"), map(_shard, shards)),
            _table(
                "Queues",
                ("queue", "priority", *(f">{name}" for name in COUNTS), ">oldest", ">per second", "remarks"),
                (row for queue in queues for row in _queue(queue, now_ms)),
            ),
            _table(
                "Servers",
                ("server process", "address", "since", "seen", "state", "maintains", ">overflow"),
                (_server(server, now_ms) for server in servers),
            ),
            _workers(status.get("workers") or {"total": 0}, now_ms),
            "</body></html>\n",
        )
    )


def _links(api: str) -> str:
    if not api:
        return ""
    return f', <a href="{_text(api)}dashboard">the dashboard</a>, the <a href="{_text(api)}docs">HTTP interface</a>'


def _troubles(shards: Sequence[Mapping[str, Any]], servers: Sequence[Mapping[str, Any]]) -> list[str]:
    out = [shard["id"] for shard in shards if shard["state"] != "in"]
    full = [shard["id"] for shard in shards if shard["is_full"]]
    unready = [f"{server['server']}/{server['process']}" for server in servers if not server["is_ready"]]
    found = [("shards out", out), ("shards full", full), ("not ready", unready)]
    return [f"{words}: {', '.join(names)}" for words, names in found if names]


def _workers(page: Mapping[str, Any], now_ms: int) -> str:
    """Nothing where none has said anything of itself."""
    if not page["total"]:
        return ""
    columns = ("worker", "host", "pid", "queues", ">slots", ">longest", "version", "seen", "state")
    more = page["total"] - len(page["workers"])
    rest = f'<p class="quiet">and {more:,} more: pinlater worker list</p>' if more else ""
    return _table("Workers", columns, (_worker(worker, now_ms) for worker in page["workers"])) + rest


def _worker(worker: Mapping[str, Any], now_ms: int) -> Row:
    silent_ms, longest_ms = worker["silent_since_ms"], worker["longest_since_ms"]
    if silent_ms is not None:
        state = _bad(f"silent for {_age(now_ms - silent_ms)}")
    else:
        state = _held("stopping") if worker["is_stopping"] else _good("working")
    stuck = " " + _bad(f"{worker['stuck_slots']:,} stuck") if worker["stuck_slots"] else ""
    queues = (name if weight == 1 else f"{name}={weight}" for name, weight in worker["queues"].items())
    return (
        _text(worker["name"]),
        _text(worker["host"]),
        str(worker["pid"]),
        _text(", ".join(queues)),
        f"{worker['busy_slots']:,}/{worker['slots']:,}{stuck}",
        "" if longest_ms is None else _age(now_ms - longest_ms),
        _text(worker["versions"].get("app") or worker["versions"].get("pinlater", "")),
        f"{_age(now_ms - worker['seen_ms'])} ago",
        state,
    )


def _shard(shard: Mapping[str, Any]) -> Row:
    word = "full" if shard["is_full"] else shard["state"]
    state = _good(word) if word == "in" else _bad(word)
    if shard["dequeue_only"]:
        state += " (takes no new jobs)"
    if shard["trouble"]:
        state += f'<br><span class="quiet">{_text(shard["trouble"])}</span>'
    for chain in shard["blocked_chains"]:
        told = f"{chain['first']} keeps {chain['waiting']:,} others of serialize key {chain['serialize_key']!r} waiting"
        state += f'<br><span class="held">{_text(told)}</span>'
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
    """A row for all of it; and one for each priority that has jobs, where more than one has."""
    rates = ", ".join(f"{name} {rate:.1f}" for name in RATES if (rate := queue["rates"].get(name, 0.0)) >= 0.05)
    levels = queue["levels"]
    since = [level["oldest_ready_ms"] for level in levels if level["oldest_ready_ms"] is not None]
    whole = {name: sum(level[name] for level in levels) for name in COUNTS}
    yield (
        _text(queue["name"]),
        "all",
        *_counts(whole),
        _age(now_ms - min(since)) if since else "",
        _text(rates),
        _remarks(queue, now_ms),
    )
    used = [level for level in levels if any(level[name] for name in COUNTS)]
    for level in used if len(used) > 1 else ():
        oldest = "" if level["oldest_ready_ms"] is None else _age(now_ms - level["oldest_ready_ms"])
        yield ("", str(level["priority"]), *_counts(level), oldest, "", "")


def _counts(counts: Mapping[str, int]) -> Iterable[str]:
    for name in COUNTS:
        text = f"{counts[name]:,}"
        yield _bad(text) if name == "failed" and counts[name] else text


def _remarks(queue: Mapping[str, Any], now_ms: int) -> str:
    pause = queue["pause"]
    if pause is None:
        return _text(", ".join(queue["flags"]))
    said = [_held("paused")]
    if pause["by"]:
        said.append(f"by {_text(pause['by'])}")
    if pause["at_ms"] is not None:
        said.append(f"{_age(now_ms - pause['at_ms'])} ago")
    until_ms = pause["until_ms"]
    ends = "until it is resumed" if until_ms is None else f"until {_time(until_ms)}, in {_age(until_ms - now_ms)}"
    more = [_text(flag) for flag in queue["flags"] if flag != "paused"]
    why = f": {_text(pause['why'])}" if pause["why"] else ""
    return ", ".join([" ".join(said) + why, ends, *more])


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


_ZERO = ' class="n zero"'


def _table(title: str, columns: Sequence[str], rows: Iterable[Row]) -> str:
    """A column whose name begins with > holds numbers. The cells are HTML already. On a phone a row is a card, whose
    cells say what they are.
    """
    names = [_text(column.lstrip(">")) for column in columns]
    classes = [' class="n"' if column.startswith(">") else "" for column in columns]
    head = "".join(f"<th{css}>{name}</th>" for css, name in zip(classes, names, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{_ZERO if css and cell == "0" else css} data-label="{name}">{_whole(cell)}</td>'
            for css, name, cell in zip(classes, names, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    body = body or f'<tr><td colspan="{len(columns)}" class="quiet only">none</td></tr>'
    return f'<h2>{title}</h2><div class="wide"><table><tr class="head">{head}</tr>{body}</table></div>'


def _whole(cell: str) -> str:
    """As one thing beside the label that a card puts in front."""
    return f"<span>{cell}</span>" if cell else ""


def _text(text: str) -> str:
    """Of whoever wrote it: neither markup, nor characters that hide or turn around what stands beside them."""
    return escape(printable(text))


def _good(text: str) -> str:
    return f'<span class="good">{_text(text)}</span>'


def _held(text: str) -> str:
    return f'<span class="held">{_text(text)}</span>'


def _bad(text: str) -> str:
    return f'<span class="bad">{_text(text)}</span>'


def _time(time_ms: int) -> str:
    return utc_text(time_ms, "%Y-%m-%d %H:%M:%S UTC")


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
