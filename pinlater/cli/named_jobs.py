"""Changes of the jobs that a command line names by their descriptors, where it could name a queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import click

from pinlater.cli.connection import say
from pinlater.cli.job_views import named_descriptors, read_jobs, say_no_descriptor, slices
from pinlater.cli.output import counted
from pinlater.client.client import Client
from pinlater.clock import SystemClock
from pinlater.model import JobInfo, JobsChanged, parse_descriptor
from pinlater.model.job_selection import FoundJobsChange, JobPhase, phase_of

_SLICE = 1_000
"""The most that a selection may name."""


class Named(NamedTuple):
    """What became of jobs that were named. `lacking`: how many of them were not changed."""

    changed: int
    lacking: int
    samples: Sequence[JobInfo]


def queue_of_words(words: Sequence[str]) -> str | None:
    """The queue that an argument names; None where it names jobs. UsageError: some of both, or several queues."""
    jobs = [word for word in words if word == "-" or ":" in word]  # no name of a queue is such
    if len(jobs) == len(words):
        return None
    if jobs or len(words) > 1:
        raise click.UsageError("give one QUEUE, or descriptors of jobs")
    return words[0]


def queue_of(descriptor: str) -> str | None:
    """None: the text is no descriptor, so there is no such job."""
    ref = parse_descriptor(descriptor)
    return None if ref is None else ref.queue


def change_named(client: Client, words: Sequence[str], change: FoundJobsChange, takes: Sequence[JobPhase]) -> Named:
    """The change, of the jobs that are named and in one of these phases; says why any other is left alone.

    `change` has the action and what the jobs get; its selection is not looked at. The audit has an entry for each
    queue, or for each 1,000 jobs of it.
    """
    changed = lacking = 0
    samples: list[JobInfo] = []
    for queue, named in groupby(named_descriptors(words), queue_of):
        for part in slices(dict.fromkeys(named), _SLICE, _SLICE, lambda _: 0):
            if queue is None:
                for each in part:
                    say_no_descriptor(each)
                lacking += len(part)
                continue
            answer = _change_slice(client, queue, part, change, takes)
            changed += answer.changed
            lacking += len(part) - answer.changed
            samples += answer.samples[: 10 - len(samples)]
    return Named(changed, lacking, samples)


def _change_slice(
    client: Client, queue: str, named: Sequence[str], change: FoundJobsChange, takes: Sequence[JobPhase]
) -> JobsChanged:
    """Jobs of one queue. Which of them are in another phase is looked up first: the answer says only how many."""
    now_ms = SystemClock().now_ms()
    there = []
    for descriptor, info in read_jobs(client, named).items():
        phase = phase_of(info, now_ms)
        if phase in takes:
            there.append(descriptor)
        else:
            say(f"left alone: {descriptor}: it is {phase}")
    if not there:
        return JobsChanged(0, 0)
    selection = replace(change.selection, queue=queue, descriptors=there)
    answer = client.change_found_jobs(replace(change, selection=selection, limit=_SLICE))
    for descriptor, why in answer.refusals.items():
        say(f"left alone: {descriptor}: {why}")
    if answer.missing_shards:
        say(f"not all jobs were searched; missing shards: {', '.join(answer.missing_shards)}")
    elif (rest := len(there) - answer.changed - len(answer.refusals)) > 0:
        say(f"left alone, since they were changed meanwhile: {counted(rest, 'job')}")
    return answer
