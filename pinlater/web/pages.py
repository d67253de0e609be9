"""The status page of a cluster: one HTML page that renews itself, with no script and nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from pinlater.durations import ago_text, span_text
from pinlater.model import queue_order
from pinlater.model.alarm_views import Severity
from pinlater.model.job_selection import PHASE_WORDS
from pinlater.printable import printable
from pinlater.queues.settings import BREAKER
from pinlater.schedule import utc_text

Cell = str | tuple[str, str]
"""A text, or a class of the style and a text."""

View = Mapping[str, Any]

_RATES = ("enqueued", "dequeued", "succeeded", "failed", "retried")

_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>PinLater: {title}</title><meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root{{color-scheme:light dark;--line:#8884;--good:#146c2e;--bad:#b3261e;--held:#8a5300}}
@media(prefers-color-scheme:dark){{:root{{--good:#5fd07f;--bad:#ff8a80;--held:#ffc266}}a{{color:#8ab4f8}}}}
body{{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em}}
h1{{font-size:1.3em}}h2{{font-size:1.05em}}div{{overflow-x:auto}}
table{{border-collapse:collapse;width:100%}}
th,td{{padding:.3em .7em;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}}
.n{{text-align:right;font-variant-numeric:tabular-nums}}
.good{{color:var(--good)}}.bad{{color:var(--bad);font-weight:600}}.held{{color:var(--held);font-weight:600}}
@media(max-width:60em){{
table,tbody,tr{{display:block}}tr{{border:1px solid var(--line);margin:0 0 .7em}}tr.head,td:empty{{display:none}}
td{{display:flex;justify-content:space-between;gap:1em;border:0;overflow-wrap:anywhere}}
td::before{{content:attr(data-label);flex:none}}}}
</style></head><body>
"""


def cluster_page(status: View, api: str = "") -> str:
    """`status` is a model.ClusterStatus as JSON holds it, with `alarms` an AlarmsPage and `workers` a
    model.WorkersPage, where they are known; `api` is the address of the HTTP interface, "" where there is none.
    """
    now_ms = status["now_ms"]
    shards, servers = status["shards"], status["servers"]
    queues = sorted(status["queues"], key=lambda queue: queue_order(queue["name"]))
    workers = status.get("workers") or {"total": 0}
    alarms = status.get("alarms") or _NOT_JUDGED
    failed = sum(any(level["failed"] for level in queue["levels"]) for queue in queues)
    paused = sum(queue["pause"] is not None for queue in queues)
    notices = [f"failed jobs in {failed:,} of {len(queues):,} queues"] if failed else []
    notices += [alarm["title"] for alarm in alarms["alarms"] if alarm["severity"] == Severity.INFO]
    notices += [f"{paused:,} queue{'' if paused == 1 else 's'} paused"] if paused else []
    verdict = _verdict(alarms)
    link = f'<a href="{_text(api)}'
    parts = [
        _HEAD.format(title=_text(verdict[1])),
        f"<h1>PinLater: {_marked('span', *verdict)}</h1><p>{_time(now_ms)}, renewed every 5 s. Also here: "
        '<a href="/metrics">/metrics</a>, <a href="/readyz">/readyz</a>, <a href="/livez">/livez</a>',
        f', {link}dashboard">the dashboard</a>, the {link}docs">HTTP interface</a>' if api else "",
        f".</p>{_marked('p', 'held', '; '.join(notices))}",
        _table("Shards", "shard state store good_calls maintained_by remarks", map(_shard, shards)),
        _table(
            "Queues",
            " ".join(("queue", *(f">{word}" for word in PHASE_WORDS.values()), ">oldest", ">per_second", "remarks")),
            (_queue(queue, now_ms) for queue in queues),
        ),
        _table(
            "Servers",
            "server_process address since seen state >overflow remarks",
            (_server(server, now_ms) for server in servers),
        ),
    ]
    if workers["total"]:
        columns = "worker host pid queues >slots >longest version seen state"
        parts.append(_table("Workers", columns, (_worker(worker, now_ms) for worker in workers["workers"])))
        more = workers["total"] - len(workers["workers"])
        parts.append(f"<p>and {more:,} more: pinlater worker list</p>" if more else "")
    return "".join((*parts, "</body></html>\n"))


_NOT_JUDGED: View = {"alarms": (), "is_alone": False, "judged_at_ms": None}


def _verdict(alarms: View) -> tuple[str, str]:
    """By the worst that is not muted: its class of the style, and all their titles."""
    shown = [
        alarm for alarm in alarms["alarms"] if alarm["muted_until_ms"] is None and alarm["severity"] < Severity.INFO
    ]
    titles = [alarm["title"] for alarm in shown]
    if alarms["is_alone"]:
        titles.append("no shard can be reached: this is what one server knows by itself")
    if titles:
        return ("bad", "; ".join(titles))
    return ("held", "not judged yet") if alarms["judged_at_ms"] is None else ("good", "well")


def _shard(shard: View) -> Sequence[Cell]:
    word = "full" if shard["is_full"] else shard["state"]
    remarks = ["takes no new jobs"] if shard["dequeue_only"] else []
    remarks += [shard["trouble"]] if shard["trouble"] else []
    remarks += [f"its clock is {shard['skew_ms']:+,} ms off"] if abs(shard["skew_ms"]) >= 50 else []
    remarks += [
        f"{chain['first']} keeps {chain['waiting']:,} others of serialize key {chain['serialize_key']!r} waiting"
        for chain in shard["blocked_chains"]
    ]
    state = ("good" if word == "in" else "bad", word)
    calls = f"{shard['good']} of {shard['samples']}"
    return shard["id"], state, shard["store"], calls, shard["maintained_by"], "; ".join(remarks)


def _queue(queue: View, now_ms: int) -> Sequence[Cell]:
    levels = queue["levels"]
    counts: list[Cell] = []
    for field, word in PHASE_WORDS.items():
        jobs = sum(level[field] for level in levels)
        counts.append(("bad" if word == "failed" and jobs else "", f"{jobs:,}"))
    since_ms = min((level["oldest_ready_ms"] for level in levels if level["oldest_ready_ms"] is not None), default=None)
    rates = [f"{name} {rate:.1f}" for name in _RATES if (rate := queue["rates"].get(name, 0.0)) >= 0.05]
    flags = [flag for flag in queue["flags"] if flag != "paused" or queue["pause"] is None]
    remarks = ", ".join([*([] if queue["pause"] is None else [_pause(queue["pause"], now_ms)]), *flags])
    return (
        queue["name"],
        *counts,
        "" if since_ms is None else span_text(now_ms - since_ms),
        ", ".join(rates),
        ("" if queue["pause"] is None else "held", remarks),
    )


def _pause(pause: View, now_ms: int) -> str:
    until_ms = pause["until_ms"]
    by = f" by {pause['by']}" if pause["by"] else ""
    ago = "" if pause["at_ms"] is None else f" {ago_text(now_ms - pause['at_ms'])}"
    why = f": {pause['why']}" if pause["why"] else ""
    if until_ms is None:
        ends = "" if pause["by"] == BREAKER else ", until it is resumed"
    else:
        ends = f", until {_time(until_ms)}, in {span_text(until_ms - now_ms)}"
    return f"paused{by}{ago}{why}{ends}"


def _server(server: View, now_ms: int) -> Sequence[Cell]:
    remarks = [server["trouble"]] if server["trouble"] else []
    for word in ("out", "full"):
        remarks += [f"sees {word}: {', '.join(server[f'shards_{word}'])}"] if server[f"shards_{word}"] else []
    overflow = server["overflow_jobs"]
    return (
        f"{server['server']}/{server['process']}",
        server["address"],
        _time(server["started_ms"]),
        ago_text(now_ms - server["seen_ms"]),
        ("good", "ready") if server["is_ready"] else ("bad", "not ready"),
        "" if overflow is None else f"{overflow:,}",
        "; ".join(remarks),
    )


def _worker(worker: View, now_ms: int) -> Sequence[Cell]:
    silent_ms, longest_ms = worker["silent_since_ms"], worker["longest_since_ms"]
    state = ("held", "stopping") if worker["is_stopping"] else ("good", "working")
    stuck = f" {worker['stuck_slots']:,} stuck" if worker["stuck_slots"] else ""
    return (
        worker["name"],
        worker["host"],
        str(worker["pid"]),
        ", ".join(name if weight == 1 else f"{name}={weight}" for name, weight in worker["queues"].items()),
        ("bad" if stuck else "", f"{worker['busy_slots']:,}/{worker['slots']:,}{stuck}"),
        "" if longest_ms is None else span_text(now_ms - longest_ms),
        worker["versions"].get("app") or worker["versions"].get("pinlater", ""),
        ago_text(now_ms - worker["seen_ms"]),
        state if silent_ms is None else ("bad", f"silent for {span_text(now_ms - silent_ms)}"),
    )


def _table(title: str, columns: str, rows: Iterable[Sequence[Cell]]) -> str:
    """A column whose name begins with > holds numbers. On a phone a row is a card, whose cells say what they are."""
    names = [(column[1:] if column[0] == ">" else column).replace("_", " ") for column in columns.split()]
    numbers = ["n" if column[0] == ">" else "" for column in columns.split()]
    body = ""
    for row in rows:
        body += "<tr>"
        for name, number, cell in zip(names, numbers, row, strict=True):
            css, text = ("", cell) if isinstance(cell, str) else cell
            body += _marked("td", f"{number} {css}".strip(), text, f' data-label="{name}"')
        body += "</tr>"
    body = body or "<tr><td>none</td></tr>"
    head = "".join(_marked("th", number, name) for name, number in zip(names, numbers, strict=True))
    return f'<h2>{title}</h2><div><table><tr class="head">{head}</tr>{body}</table></div>'


def _marked(tag: str, css: str, text: str, more: str = "") -> str:
    marks = f' class="{css}"' if css else ""
    return f"<{tag}{marks}{more}>{_text(text)}</{tag}>"


def _text(text: str) -> str:
    """Of whoever wrote it: neither markup, nor characters that hide or turn around what stands beside them."""
    return escape(printable(text))


def _time(time_ms: int) -> str:
    return utc_text(time_ms, "%Y-%m-%d %H:%M:%S UTC")
