"""The messages between a worker and its heartbeat process: MessagePack in frames.

The tags and fields stay: the two may be of different versions.

Times are seconds of time.monotonic, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import math

import msgspec

from pinlater.client.client_tls import Tls
from pinlater.client.token import Token
from pinlater.model import LogLine
from pinlater_workers.child_sockets import frame
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.progress_report import ProgressReport

_encoder = msgspec.msgpack.Encoder()


class HeartbeatEntry(msgspec.Struct, array_like=True, gc=False):
    """A claim to be kept alive, by a number of the worker's choice.

    `good_s`: it surely held then, and its lease ran from then or later. Beats come from `from_s` on, the first at once,
    and none after `until_s`. A beat leaves `run_after_ms` as the job's; 0: not known, and the server says now.
    """

    number: int
    queue: str
    descriptor: str
    claim: str
    good_s: float
    from_s: float
    until_s: float
    run_after_ms: int = 0
    type: str = ""
    """That of the job; for the list of workers."""
    over_s: float = math.inf
    """When its time limit is over, if it begins at once."""


class RunningEntry(msgspec.Struct, array_like=True, gc=False):
    """A job that runs, since when."""

    descriptor: str
    type: str
    began_s: float
    until_s: float = math.inf
    """When its time limit is over."""


class UnknownEntry(msgspec.Struct, array_like=True, gc=False):
    """Jobs of a type ("": their bodies name none) that the worker does not know: of how many it was the first to say
    so, and when it met one last.
    """

    queue: str
    type: str
    jobs: int
    met_s: float


class WorkerState(msgspec.Struct):
    """A worker, for the list of workers: who it is, and what it runs. `id` is that of one run of it."""

    id: str
    name: str
    host: str
    pid: int
    began_s: float
    queues: dict[str, int]
    slots: int
    busy_slots: int
    stuck_slots: int
    running: list[RunningEntry]
    versions: dict[str, str]
    is_stopping: bool = False
    has_stopped: bool = False
    is_quiet: bool | None = None
    """None: it knows no commands."""
    job_types: list[str] = []
    unknown_types: list[UnknownEntry] = []


class Begin(msgspec.Struct, tag="Begin", omit_defaults=True):
    """To the process, first. `servers` as AsyncClient takes them.

    `queues`: where claims for `source`, which is this worker's alone, are looked for when it has been silent for
    `silent_s`.
    """

    servers: list[str]
    source: str
    lease_s: float
    interval_s: float
    queues: list[str]
    silent_s: float
    tls: Tls | None = None
    token: Token | None = None
    hears_cancels: bool = False
    """The worker knows ClaimsCancelled."""
    hears_ready: bool = False
    """The worker knows ProcessReady."""
    hears_commands: bool = False
    """The worker knows WorkerCommanded."""
    may_end: bool = False
    """The worker is a process of its own, which may be ended where a job blocks it for good."""


class WatchClaims(msgspec.Struct, tag="Watch"):
    """To the process: beat these, also where they are watched already."""

    claims: list[HeartbeatEntry]


class ForgetClaims(msgspec.Struct, tag="Forget"):
    """To the process: these have ended."""

    numbers: list[int]


class ProgressEntry(msgspec.Struct, array_like=True, gc=False):
    """How far the job of that claim is; text None: nothing new. And what it logged."""

    number: int
    fraction: float | None
    text: str | None
    log_lines: list[LogLine] = []

    def followed_by(self, newer: ProgressEntry) -> ProgressEntry:
        """Both in one."""
        both = ProgressReport(self.fraction, self.text, self.log_lines).followed_by(
            ProgressReport(newer.fraction, newer.text, newer.log_lines)
        )
        return ProgressEntry(self.number, both.fraction, both.text, list(both.log_lines))


class SendProgress(msgspec.Struct, tag="Progress"):
    """To the process: a beat of these claims at once, which says so."""

    progress: list[ProgressEntry]


class Alive(msgspec.Struct, tag="Alive", omit_defaults=True):
    """To the process: the worker's event loop goes round. `worker`: what it runs, where that is news."""

    worker: WorkerState | None = None


class ProcessReady(msgspec.Struct, tag="Ready"):
    """To the worker, first: from now on the process beats."""


class ClaimsRenewed(msgspec.Struct, tag="Beaten"):
    """To the worker: these claims were there, and their leases ran from `good_s` or later."""

    numbers: list[int]
    good_s: float


class ClaimsFailing(msgspec.Struct, tag="Trouble"):
    """To the worker: what became of these. Those with CLAIM_LOST are not watched any more."""

    numbers: list[int]
    reason: StopReason = msgspec.field(name="why")
    detail: str = ""


class ClaimsEnded(msgspec.Struct, tag="Ended"):
    """To the worker: these jobs have ended, and no claim came after these. They are not watched any more."""

    numbers: list[int]


class ClaimsCancelled(msgspec.Struct, tag="Cancelled"):
    """To the worker: these jobs are to stop; `by` says of each who asked. They are watched as before."""

    numbers: list[int]
    by: list[str]


class WorkerCommanded(msgspec.Struct, tag="Commanded"):
    """To the worker: what an operator wants it to do; the same one comes again until it is a minute old."""

    command: int
    number: int
    """The greater, the newer."""


class AskBlocked(msgspec.Struct):
    """To the witness, a thread of the worker: what holds up the event loop?"""


class BlockedBy(msgspec.Struct):
    """From the witness: the job whose coroutine runs ("": no job's), when its time limit is over, where it stands."""

    descriptor: str = ""
    type: str = ""
    until_s: float = math.inf
    where: str = ""


ToProcess = Begin | WatchClaims | ForgetClaims | SendProgress | Alive
ToWorker = ProcessReady | ClaimsRenewed | ClaimsFailing | ClaimsEnded | ClaimsCancelled | WorkerCommanded

read_by_process = msgspec.msgpack.Decoder(ToProcess).decode
read_by_worker = msgspec.msgpack.Decoder(ToWorker).decode


read_by_witness = msgspec.msgpack.Decoder(AskBlocked).decode
read_from_witness = msgspec.msgpack.Decoder(BlockedBy).decode


def written(message: ToProcess | ToWorker | AskBlocked | BlockedBy) -> bytes:
    return frame(_encoder.encode(message))
