"""The table of queue settings written out as the page docs/queues.md."""

from __future__ import annotations

from pinlater.queues.settings import SETTINGS, QueueSetting, QueueSettings

_PAGE = """# Queues

<!-- Written by `python -m pinlater.queues`. Edit pinlater/queues/settings.py and settings_page.py instead. -->

A queue is made by `pinlater queue create NAME` (createQueue), and deleted with all its jobs by `pinlater queue delete`.
Its name is 1 to 64 letters, digits, underscores and dashes, with no dash in front.

## Settings

Each key can be set for one queue and for all of them, by a command or in a file:

```sh
pinlater queue set mail claim_timeout=30s max_attempts=20   # for one queue
pinlater queue set --defaults succeeded_ttl=6h              # for all that say nothing else
pinlater queue unset mail claim_timeout                     # it comes from elsewhere again
pinlater queue pause mail --why "the provider is down"      # and resume, drain, set-rate
pinlater queue show mail                                    # every value, and where it comes from
```

| key | unless set | allowed | what it does |
| --- | --- | --- | --- |
{rows}
Times have a unit: `250ms`, `90s`, `1h30m`, `1.5h`, `7d`; so have sizes: `512KiB`, `1MiB`. A file may also hold plain
numbers of bytes or jobs per second.

"unless set" is the value of a server without a configuration. Its own `--claim-timeout`, `--succeeded-ttl`,
`--failed-ttl`, `--crash-budget` and `--max-body` take that place.

## Where a value comes from

The first of these that says something counts, key by key:

| `queue show` says | set by |
| --- | --- |
| `queue` | a command, for this queue |
| `file` | the file, table `[queues.NAME]` |
| `default` | a command, for all queues (`--defaults`) |
| `file default` | the file, table `[defaults]` |
| `server` | the configuration of the server |

So what a command set wins over the file: a pause in an incident needs nobody to change a file. `queue unset` makes room
for the file again.

Who paused a queue, why, since when and until when come from where `paused` comes from, never from anywhere else; they
are forgotten when it is resumed. A pause whose `paused_until` is over counts as none; a command that sets such a one is
refused.

`max_body` above the server's own bound is refused from a command, and cut to that bound in the file; `max_result` is
cut to it.

A result is what a worker leaves with its success, for callers that ask for it. One above `max_result` makes a failure
of the ack: the attempt counts as failed, and the status of the job says `RESULT_TOO_LARGE`. No attempt follows where
the ack is `permanent`, as those of Python workers are.

A dead-letter queue must exist when a command names it, has none of its own, and is not deleted while others name it.
Where a file and a command together make a chain, the queue in its middle has none.
A file may name one that is not there: that is logged (`dead_letter_queues_missing`), and jobs that failed stay
until it is made. Dead letters are allowed as many attempts as `max_attempts` of their queue says, or {attempts}.

A failure is in one place, whoever retries jobs and replays letters.
`pinlater job retry` takes the letter of a job with it; a job whose letter runs or has succeeded is left alone, and
named.
`pinlater queue replay` makes a new job of a letter, and the job that it is the letter of is **replayed** from then on:
it counts apart from those that failed, and no retry takes it.
The pages of a queue say how many of its letters lie in its dead-letter queue, and the page of that one whose letters it
holds. No store counts letters by where they came from: a page looks at them for a quarter of a second, and says where
there are more.

## The file

`pinlater serve --queue-file FILE` (TOML; [conf/queues.toml](../conf/queues.toml) is an example) is read again when it
changes, on each server that has it; give all of them the same one. A file with mistakes changes nothing, and the log
names all of them, once. The file makes no queue.

## How all shards and servers agree

A queue and its settings are one configuration entry with a version, on every shard; the latest version wins everywhere.
A change starts from what the shards that answer have. It counts at once at the server that took the command, and on all
others when they next read the shards, twice a second, eight of them at a time. It needs one healthy shard, and says
which ones it missed: those catch up with it before they are readmitted. Of two commands that change a queue at the same
moment, the later one finds what the other has set, and changes only its own keys.

A deleted queue leaves a tombstone for 30 days. A shard that is away for longer than that brings the queue back.
"""


def docs_page() -> str:
    """docs/queues.md."""
    attempts = "2, as jobs that say nothing"
    return _PAGE.format(rows="".join(_row(setting) for setting in SETTINGS), attempts=attempts)


def _row(setting: QueueSetting) -> str:
    default = setting.text(getattr(QueueSettings(), setting.field)) or "(none)"
    allowed = "written by the server" if setting.by_server else setting.kind.allowed
    return f"| `{setting.name}` | `{default}` | {allowed} | {setting.help} |\n"
