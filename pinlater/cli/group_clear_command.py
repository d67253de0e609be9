"""The steps of `pinlater group clear`, over all shards, until no job of the queue has a group."""

from __future__ import annotations

from dataclasses import dataclass, field

import click

from pinlater.cli.connection import say
from pinlater.cli.exit_codes import EXIT_INCOMPLETE
from pinlater.cli.output import counted
from pinlater.cli.progress import StatusLine
from pinlater.client.client import Client
from pinlater.errors import MethodUnknown
from pinlater.model import CONTINUATION_END, CONTINUATION_START
from pinlater.printable import json_text

TOO_OLD = "this server is of an earlier version, which takes no groups off jobs: upgrade it first"

_ROUNDS, _MORE_STEPS = 3, 20
"""After so many times as many steps as a count took, and some, all jobs of the beginning are cleared: a further count
tells whether others come meanwhile.
"""


@dataclass(slots=True)
class _Walk:
    """Steps over all shards that follow each other: what they came to."""

    jobs: int = 0
    steps: int = 0
    continuation: str = CONTINUATION_START
    missing: set[str] = field(default_factory=set)

    @property
    def is_done(self) -> bool:
        return self.continuation == CONTINUATION_END


class GroupClearing:
    """Takes the groups off the jobs of one queue. With `dry_run` it only counts them."""

    def __init__(self, client: Client, queue: str, password: str, *, dry_run: bool) -> None:
        self._client = client
        self._queue = queue
        self._password = password
        self._dry_run = dry_run
        self._line = StatusLine()

    def run(self, format: str) -> None:
        """Go to the end, and say what it came to. SystemExit where some jobs still have groups."""
        try:
            walk = self._count()
            left = walk.jobs
            if not self._dry_run:
                walk, left = self._take_off(walk)
        except MethodUnknown as unknown:
            raise MethodUnknown(TOO_OLD) from unknown
        finally:
            self._line.clear()
        missing = sorted(walk.missing)
        if format == "table":
            click.echo(self._summary(walk.jobs, left))
        else:
            click.echo(json_text({"jobs": walk.jobs, "left": left, "missing_shards": missing}))
        if missing:
            say(f"shard {', '.join(missing)} is out, and its jobs keep their groups: clear again once it is back")
        if left and not self._dry_run:
            say(f"jobs with groups go on coming into {self._queue}: end what enqueues them, then clear again")
        if missing or (left and not self._dry_run):
            raise SystemExit(EXIT_INCOMPLETE)

    def _summary(self, jobs: int, left: int) -> str:
        if self._dry_run:
            return f"{counted(jobs, 'job')} of {self._queue} with a group; none was changed: a dry run"
        return f"{counted(jobs, 'job')} of {self._queue} cleared of their groups; {left:,} left"

    def _count(self) -> _Walk:
        return self._go_on(_Walk(), "with a group", dry_run=True)

    def _take_off(self, before: _Walk) -> tuple[_Walk, int]:
        """All steps; how many jobs are left, since others go on coming."""
        walk = _Walk()
        while True:
            self._go_on(walk, f"of {before.jobs:,} cleared", most=_ROUNDS * before.steps + _MORE_STEPS)
            left = 0 if walk.is_done else self._count().jobs
            if walk.is_done or left:
                return walk, left

    def _go_on(self, walk: _Walk, what: str, *, dry_run: bool = False, most: int | None = None) -> _Walk:
        end = None if most is None else walk.steps + most
        while not walk.is_done and walk.steps != end:
            step = self._client.clear_groups(
                self._queue, self._password, continuation=walk.continuation, dry_run=dry_run
            )
            walk.jobs += step.jobs
            walk.steps += 1
            walk.continuation = step.continuation
            walk.missing.update(step.missing_shards)
            self._line.show(f"{walk.jobs:,} {what}")
        return walk
