"""Workers that have their claims bound to their connections, as plain callers."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Any

from pinlater.model import Ack, Checkpoint, DequeuedJob, DequeueRequest, Job, JobInfo, JobState
from pinlater.wire.convert import (
    acks_to_wire,
    checkpoints_to_wire,
    dequeue_to_wire,
    dequeued_from_wire,
    enqueue_to_wire,
)
from pinlater.wire.methods import LOOKUP
from tests.server.running import Plain

_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # return 0: keep no byte of what arrives


async def enqueue(caller: Plain, *jobs: Job, queue: str = "mail") -> None:
    await caller.call("enqueueJobs", request=enqueue_to_wire(queue, jobs))


async def take(caller: Plain, limit: int = 1, **fields: Any) -> list[DequeuedJob]:
    """Jobs, bound to the caller's connection."""
    request = DequeueRequest("mail", limit, **{"release_on_disconnect": True, **fields})
    return dequeued_from_wire(await caller.call("dequeueJobs", request=dequeue_to_wire(request)))


async def take_one(caller: Plain, **fields: Any) -> DequeuedJob:
    (job,) = await take(caller, **fields)
    return job


async def beat(caller: Plain, job: DequeuedJob) -> None:
    """A checkpoint that names the claim."""
    beats = [Checkpoint(job.descriptor, claim_descriptor=job.claim_descriptor)]
    await caller.call("checkpointJobs", request=checkpoints_to_wire("mail", beats))


def succeeded(*jobs: DequeuedJob) -> Any:
    """The request of an ack."""
    return acks_to_wire("mail", [Ack(job.descriptor) for job in jobs], [])


async def info(caller: Plain, job: DequeuedJob) -> JobInfo:
    found = await caller.call("lookupJobs", request=LOOKUP.request([job.descriptor], False))
    return LOOKUP.result(found)[job.descriptor]


async def is_held(caller: Plain, job: DequeuedJob) -> bool:
    """Whether the job is still under that claim."""
    now = await info(caller, job)
    return now.state is JobState.IN_PROGRESS and now.claim_descriptor == job.claim_descriptor


def fall_silent(caller: Plain) -> None:
    """From now on this end answers nothing, not even as a kernel does: as if its machine had lost its power (Linux)."""
    instructions = ctypes.create_string_buffer(_DROP_ALL)
    program = struct.pack("HL", 1, ctypes.addressof(instructions))
    caller.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
