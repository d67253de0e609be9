"""The table of conditions written out as the page docs/alarms.md."""

from __future__ import annotations

from pinlater.alarms.condition import Condition
from pinlater.alarms.condition_table import CONDITIONS

_PAGE = """# Alarms

<!-- Written by `python -m pinlater.alarms`. Edit pinlater/alarms/condition_table.py and alarms_page.py instead. -->

This page lists every alarm that a cluster raises, and what to do about each. Look one up [below](#what-to-do).
An alarm says what is broken, since when, why, which jobs and queues it affects, and what to do: a sentence and a
command. You need not set up anything:

```sh
pinlater alarms                      # those that hold now, the worst first
pinlater alarms --ended              # the last 200 that ended, with when they began and how long they lasted
pinlater alarms -o json              # for programs; GET /v1/alarms has the same
pinlater alarms mute no_worker --subject mail --for 2h --reason 'the provider is down'
pinlater alarms unmute no_worker --subject mail
```

The dashboard (overview and list of queues), the first line of `pinlater top`, `pinlater check` and the status page of
`--http` show the same alarms. [Webhooks, Slack, Alertmanager and Prometheus](webhooks.md) notify people.

## The conditions

| condition | severity | holds when | threshold | set where | not raised for | absorbs |
| --- | --- | --- | --- | --- | --- | --- |
{rows}
| severity | meaning |
| --- | --- |
| critical | jobs are not done, or will be lost |
| warning | jobs will not be done in time if nobody acts |
| info | worth knowing |

**Causes absorb effects.** If two alarms of a queue have one cause, only the cause is an alarm, and it lists the effect.
For example killed workers, a queue without workers and the jobs that wait in it are one alarm.
It is as severe as the worst condition that it lists.

## What to do

| condition | what to do |
| --- | --- |
{remedies}
## Who judges

One server process judges for the whole cluster, about every 5 seconds. It does so whether or not anybody asks, so
"since" is right.
The leases decide which process it is: one of those that can use the most shards, and that are of a version with alarms.

- **Where alarms are kept.** The judge writes them to two shards, where every server reads them. When the judge ends,
  another process takes over and keeps the beginnings. If two judge for a moment, each uses what the other one wrote.
- **When an alarm ends.** When two judgements have not found it, or after a longer time where the table has one; so a
  condition that comes and goes is one alarm. An alarm ends at once when its queue is deleted.
- **When no shard can be used.** Each server judges by its own state, and its answer has `is_alone`.
- **How fresh it is.** An answer has the judge and the time; a judgement older than a minute is shown as such.
- **What a new judge needs.** Rates of failures need five minutes of observation, a backlog ten. After a takeover these
  alarms come that much later; existing ones stay.

[scale.md](scale.md) says what this costs.

## Who sees what

| right ([access.md](access.md)) | shows |
| --- | --- |
| to read a queue | its alarms, and those of shards and servers |
| to read all queues | numbers of jobs and names of workers over all queues, and how many alarms are not listed |
| to see bodies | texts of errors |

## Mutes

Mute an alarm that you know and that needs no action now.
A mute is for a condition, or for one subject of it (a queue, a shard, a process).
It has a reason, ends within 30 days, and is recorded in the audit.
It needs the right to operate all queues, or the admin password.
A muted alarm is still judged, and listed as muted; `check`, the first line of `top` and the overview leave it out.
"""


def docs_page() -> str:
    """docs/alarms.md."""
    return _PAGE.format(rows="".join(map(_row, CONDITIONS)), remedies="".join(map(_remedy, CONDITIONS)))


def _row(each: Condition) -> str:
    absorbed = ", ".join(f"`{name}`" for name in each.absorbs)
    cells = f"`{each.name}`", str(each.severity), each.holds, each.threshold, each.set_where, each.not_for, absorbed
    return f"| {' | '.join(cells)} |\n"


def _remedy(each: Condition) -> str:
    return f"| `{each.name}` | {each.remedy} |\n"
