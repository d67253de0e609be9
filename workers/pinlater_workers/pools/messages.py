"""The messages between a worker and a process of its pool: MessagePack in frames.

The tags and the order of the fields stay: the two may be of different versions.

Two connections, so that each thread of the process waits for its own: on the one come jobs, one at a time, and outcomes
go back; on the other, while a job runs, it is told to stop, and asks for checkpoints.
"""

from __future__ import annotations

import msgspec

import pinlater.errors
import pinlater_workers.errors
from pinlater.model import Checkpoint, DequeuedJob, LogLine
from pinlater_workers.child_sockets import frame
from pinlater_workers.errors import WorkerError
from pinlater_workers.jobs.batch import MemberOutcomes
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.outcome import SUCCEEDED, Outcome

_ENCODER = msgspec.msgpack.Encoder()


class Message(msgspec.Struct, array_like=True, gc=False):
    """The root."""


class StartApp(Message, tag="Start"):
    """First of all: the app, and where its modules are found."""

    app_spec: str
    path: list[str]
    takes_progress: bool = False
    """The worker knows ProgressMade."""

    job_types: list[str] = []
    """Names of those that its jobs are of, as far as the worker knows when it starts."""


class Ready(Message, tag="Ready"):
    """The answer to StartApp."""


class StartFailed(Message, tag="Broken"):
    """The other answer: the app cannot be loaded, and the process ends."""

    error: str


class RunJob(Message, tag="Run"):
    """Starts a job. `name` "": the raw job of the queue. `number`, that of the job in its process, is what StopJob
    refers to.
    """

    number: int
    name: str
    queue: str
    job: DequeuedJob
    deadline_ms: int
    unknown_delay_ms: int


class RunBatch(Message, tag="RunBatch"):
    """Starts a batch: its jobs are of one type."""

    number: int
    name: str
    queue: str
    jobs: list[DequeuedJob]
    deadline_ms: int
    unknown_delay_ms: int


class JobEnded(Message, tag="Ended"):
    """Tells the outcome of a job."""

    outcome: Outcome


class BatchEnded(Message, tag="BatchEnded"):
    """Tells the outcomes of the jobs of a batch, in order."""

    outcomes: list[Outcome]

    def whole(self) -> MemberOutcomes:
        """As the worker knows the outcome of a batch."""
        return MemberOutcomes(SUCCEEDED.action, members=tuple(self.outcomes))


class StopMember(Message, tag="LoseJob"):
    """Tells one job of the batch of that number, counted from 0, to stop; the batch goes on. `reason`: a StopReason."""

    number: int
    index: int
    reason: str = StopReason.CLAIM_LOST.value
    by: str = ""


class StopJob(Message, tag="Tell"):
    """Asks the process to stop the job of that number; `reason` is a StopReason, `by` who asks for it."""

    number: int
    reason: str
    by: str = ""


class ProgressMade(Message, tag="Progress"):
    """Tells how far a job is. `number` is that of the job, or of the batch that the job is of."""

    number: int
    descriptor: str
    fraction: float | None
    text: str | None
    log_lines: list[LogLine] = []


class SaveRequest(Message, tag="Ask"):
    """Asks for a checkpoint. `number` is the job's, `ask` that of the question."""

    number: int
    ask: int
    checkpoint: Checkpoint


class SaveAnswer(Message, tag="Answer"):
    """The answer to a SaveRequest. `error` "": done; else the name of an exception."""

    ask: int
    error: str = ""
    message: str = ""

    @staticmethod
    def of(ask: int, error: BaseException | None) -> SaveAnswer:
        return SaveAnswer(ask) if error is None else SaveAnswer(ask, type(error).__name__, str(error))

    def exception(self) -> Exception | None:
        """As it was raised in the worker, where it is one of this project's; else a WorkerError that names it."""
        if not self.error:
            return None
        for module in (pinlater.errors, pinlater_workers.errors):
            kind = getattr(module, self.error, None)
            if isinstance(kind, type) and issubclass(kind, pinlater.errors.PinLaterError | WorkerError):
                return kind(self.message)
        return WorkerError(f"{self.error}: {self.message}")


ToProcess = StartApp | RunJob | RunBatch | StopJob | StopMember | SaveAnswer
FromProcess = Ready | StartFailed | JobEnded | BatchEnded | SaveRequest | ProgressMade

read_by_process = msgspec.msgpack.Decoder(ToProcess).decode
read_by_worker = msgspec.msgpack.Decoder(FromProcess).decode


def written(message: Message) -> bytes:
    return frame(_ENCODER.encode(message))
