"""The table of conditions written out as the page docs/alarms.md."""

from __future__ import annotations

from pinlater.alarms.condition import Condition
from pinlater.alarms.condition_table import CONDITIONS

_PAGE = """# Alarms

<!-- Written by `python -m pinlater.alarms`. Edit pinlater/alarms/condition_table.py and alarms_page.py instead. -->

An alarm says what is broken, since when, why, how bad it is (jobs, queues), and what to do: a sentence and a command.
One judge raises all of them, and every face of a cluster shows the same ones:

```sh
pinlater alarms                      # those that stand, the worst first
pinlater alarms --ended              # the last 200 that ended, with when they began and how long they lasted
pinlater alarms -o json              # for programs; GET /v1/alarms has the same
pinlater alarms mute no_worker --subject mail --for 2h --reason 'the provider is down'
pinlater alarms unmute no_worker --subject mail
```

The overview of the dashboard, its list of queues, the first line of `pinlater top`, `pinlater check` and the status
page of `--http` show them too. [Webhooks, Slack, Alertmanager and Prometheus](webhooks.md) bring them to people.

## The conditions

| condition | severity | holds when | threshold | set where | not raised for | absorbs |
| --- | --- | --- | --- | --- | --- | --- |
{rows}
"Critical": jobs are not done, or will be lost. "Warning": jobs will not be done in time if nobody acts. "Info": worth
knowing.

**Causes absorb effects.** A condition that absorbs another one about the same queue lists it, in place of an alarm
more: workers that were killed, the queue that nobody works on and the jobs that wait there are one alarm. It is as
severe as the worst of what it lists.

## What to do

| condition | what to do |
| --- | --- |
{remedies}
## Who judges

One of the server processes that can use the most shards, the same by the word of all leases, about every 5 seconds,
whether anybody asks or not: so "since" is right. While servers are upgraded one after the other, it is one of those
that can judge.
It keeps what it finds in two shards, where every server reads it when it is asked; when it goes, the one that follows
goes on, with the same beginnings. Where two judge for a moment, each goes by what the other one wrote.
An alarm is over when two judgements have not found it, or where the table says a longer time: what comes and goes is
one alarm. With its queue it ends at once.
Where no shard can be used each server judges by what it knows itself, and its answer says so (`is_alone`).
An answer says who judged, and when: a judgement that is older than a minute is shown as such.
[scale.md](scale.md) says what that costs.

The judge learns from what it sees: rates of failures need five minutes, a backlog ten. After a server took over, these
alarms come so much later; those that stood before stay.

## Who sees what

Whoever may read a queue sees its alarms; those of shards and servers are for whoever may read any queue.
Numbers of jobs over all queues, names of workers of all of them, and how many alarms more there are than are listed are
for those who may read all queues, and texts of errors for those who may see bodies
([access.md](access.md)).

## Mutes

A mute is of a condition, or of one subject of it (a queue, a shard, a process), has an end within 30 days and a reason,
and stands in the audit. It needs the right to operate all queues, or the admin password.
A muted alarm is judged as before and listed as muted; `check`, the first line of `top` and the overview pass over it.
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
