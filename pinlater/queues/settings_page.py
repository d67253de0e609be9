"""The table of queue settings written out as the page docs/queues.md."""

from __future__ import annotations

from pinlater.queues.settings import SETTINGS, QueueSetting, QueueSettings

_PAGE = """# Queues

<!-- Written by `python -m pinlater.queues`. Edit pinlater/queues/settings.py and settings_page.py instead. -->

This page says how to create a queue, how to set its limits and times, and which settings there are.
`pinlater queue create NAME` (createQueue) creates a queue, `pinlater queue delete` deletes it with all its jobs.
A name has 1 to 64 letters, digits, underscores and dashes, with no dash in front.

## Settings

You set a key for one queue or for all queues, by a command or in a [file](#the-file):

```sh
pinlater queue set mail claim_timeout=30s max_attempts=20   # for one queue
pinlater queue set --defaults succeeded_ttl=6h              # for all that have none of their own
pinlater queue unset mail claim_timeout                     # it comes from elsewhere again
pinlater queue pause mail --why "the provider is down"      # and resume, drain, set-rate
pinlater queue show mail                                    # every value, and where it comes from
```

| key | unless set | allowed | what it does |
| --- | --- | --- | --- |
{rows}
Times have a unit: `250ms`, `90s`, `1h30m`, `1.5h`, `7d`; so have sizes: `512KiB`, `1MiB`. A file may also hold plain
numbers of bytes or jobs per second.

"unless set" is the value of a server without a configuration. The server's `--claim-timeout`, `--succeeded-ttl`,
`--failed-ttl`, `--crash-budget` and `--max-body` replace it.

## Where a value comes from

For each key the first of these that sets it decides:

| `queue show` says | set by |
| --- | --- |
| `breaker` | its circuit breaker, which is open: `paused` and what goes with it |
| `queue` | a command, for this queue |
| `file` | the file, table `[queues.NAME]` |
| `default` | a command, for all queues (`--defaults`) |
| `file default` | the file, table `[defaults]` |
| `server` | the configuration of the server |

An open breaker pauses a queue that nothing else pauses; it changes no other setting.
A command takes precedence over the file, so an operator can pause a queue in an incident without changing a file.
`queue unset` removes the command's value, and the file decides again.

## Aging between priorities

A worker gets jobs of a higher priority first, always.
While jobs of priority 1 keep coming, one of priority 3 may wait for ever.
`pinlater queue set mail priority_aging=10m` bounds that: a job counts one priority higher for each 10 minutes since its
run_after, so one of priority 3 counts as 1 after 20 minutes.
Jobs that count the same come by run_after, whatever their own priorities: what has come up stands before all that comes
later.

- It counts in every dequeue: over shards, by long polls, from many queues, in a dry run
  ([decision 3](semantics.md#3-order)).
- A job keeps its priority, and answers, counts and metrics show that one.
  `pinlater job get` says as what a waiting job counts, and its place in line goes by that.
  The clients for Python list the jobs of one answer by their own priorities.
- Jobs of a priority take turns by their [groups](fairness.md#priorities-that-age) as ever.
  The priority then counts as high as the oldest of its due jobs.
- A failed attempt moves the run_after of its job, and its age counts anew from there.
- A claim looks at the first jobs of each priority, not only at the highest that has some.
  A queue without the setting pays nothing.
- Servers of earlier versions do not know the setting, and go on strictly.
  Nothing is stored with jobs, so there is nothing to undo.

## Pauses

Who paused a queue, why, since when and until when always come from the same place as `paused`.
`queue resume` removes them.
A pause ends at its `paused_until`. A command that sets a time in the past is refused.

## The circuit breaker

When most attempts of a queue fail, as all do while a provider is down, each further one costs a job one of its attempts
and the provider a call. A circuit breaker pauses the queue instead, and runs it again by itself. It is off unless you
set it:

```sh
pinlater queue set mail pause_on_failures=50%/100/1m/30s   # share, at least so many attempts, window, a try every
pinlater queue show mail                                   # paused by @breaker, why, and since when
pinlater job get mail:s1:p1:1790000000000000               # why a job waits, and when the next one is tried
pinlater alarms                                            # breaker_open, while it is
pinlater queue resume mail                                 # run again now, without waiting for a try
```

**It opens** when of the attempts that ended in the window (1m) that share (50%) or more failed, and at least so many
(100) ended. The queue is then paused by `@breaker`, with these numbers as the reason, which the audit and the alarm
[breaker_open](alarms.md) have too. Jobs that run go on.

| counts as | what |
| --- | --- |
| a failure | a failed ack, also where its job is tried again; a claim that expired, or whose connection broke |
| a success | a successful ack |
| nothing | a checkpoint, a snooze, a requeue, a cancel, a job that expired before it ran, an ack without effect |

Items of flows and dead letters count as other jobs do.

**While it is open** one job at a time is handed out in the whole cluster: the first of them 30s after it opened, each
further one at the earliest 30s after the one before. One that succeeds closes the breaker: the queue runs again, and
counts begin anew. One that fails keeps it open. One that is lost says nothing, and the next one is tried: its worker or
a server died, its claim expired, or it was requeued.

**Pauses by hand** come first. `queue pause` works as ever, also while the breaker is open: no job is tried then, and
the breaker neither opens nor closes. `queue resume` ends the pause and resets the breaker: it is closed, and counts
begin anew. A pause that ends at its `paused_until` leaves the breaker as it was. Where `pause_on_failures` is taken
away, the breaker is closed at once.

How exact it is:

- **One job at a time** holds whichever server, worker or store dies: a server takes the breaker's slot by
  compare-and-swap, in one store, before it claims the job. While the shard of the slot or of the job is out, nothing is
  tried. Once that shard was given up, or has not been configured for a minute, others go on. A store that lost its last
  writes may let a second job be tried.
- **Counts** are those of all servers, at most 5s late. The window moves in steps of a twentieth of itself, of a second
  at least. What a server process counted in the second before it was killed is lost.
- **Opening and closing** are known to all servers half a second later. What was handed out before goes on.

A queue without the setting pays nothing for it. Servers of earlier versions know no breakers: while one is alive the
setting is refused (BREAKERS_NOT_YET), and no breaker opens. Take the setting away before you go back to such a version.

## Bodies and results

A command cannot set `max_body` above the server's own bound; a value in the file is reduced to that bound.
`max_result` is always reduced to it.

A worker may leave a result with a success, for callers that ask for it.
If the result is larger than `max_result`, the attempt fails, and the job's status says `RESULT_TOO_LARGE`.
No attempt follows if the ack is `permanent`, as those of Python workers are.

## Dead-letter queues

A dead-letter queue must exist when a command names it.
It has no dead-letter queue of its own, and cannot be deleted while other queues name it.
If a file and a command together make a chain, the queue in the middle has no dead-letter queue.
A file may name a queue that does not exist: the server logs that (`dead_letter_queues_missing`), and failed jobs stay
until the queue is created.
Dead letters may take as many attempts as `max_attempts` of their queue, or {attempts}.

A failure is dealt with once:

- `pinlater job retry` removes the dead letter of the job. It does not retry a job whose letter runs or has succeeded,
  and names that job.
- `pinlater queue replay` makes a new job of a letter. The original job is **replayed** from then on: it is counted
  apart from failed jobs, and no retry takes it.

The page of a queue shows how many of its letters are in its dead-letter queue.
The page of a dead-letter queue shows which queues its letters come from.
No store counts letters by their origin, so a page counts them for a quarter of a second, and says if there are more.

## The file

`pinlater serve --queue-file FILE` reads settings from a TOML file; [conf/queues.toml](../conf/queues.toml) is an
example. Give all servers the same file. Each server reads its file again when it changes.
A file with mistakes changes nothing, and the log names all mistakes, once. The file creates no queue.

## How all shards and servers agree

A queue and its settings are one configuration entry with a version, on every shard; the latest version wins everywhere.

- **When a change holds.** At once at the server that took the command. The others read the shards twice a second, eight
  of them at a time, and apply it then.
- **When a shard is missing.** A change needs one healthy shard, starts from the values on the shards that answer, and
  names those that it missed. They catch up before they are readmitted.
- **When two commands change a queue at the same moment.** The later one starts from what the other has set, and changes
  only its own keys.
- **When a queue is deleted.** It leaves a tombstone for 30 days. A shard that is away for longer brings the queue back.
"""


def docs_page() -> str:
    """docs/queues.md."""
    attempts = "2, as jobs that say nothing"
    return _PAGE.format(rows="".join(_row(setting) for setting in SETTINGS), attempts=attempts)


def _row(setting: QueueSetting) -> str:
    default = setting.text(getattr(QueueSettings(), setting.field)) or "(none)"
    allowed = "written by the server" if setting.by_server else setting.kind.allowed
    return f"| `{setting.name}` | `{default}` | {allowed} | {setting.help} |\n"
