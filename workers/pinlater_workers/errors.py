"""The errors that a job did not cause itself; a retry policy may treat each in its own way.

WorkerError
├── ConfigurationError     a file, a decorator or a command line says what cannot be; for a person
├── ArgumentsInvalid       arguments that the job's function does not take (also a TypeError)
├── BodyInvalid            a body that says it is ours and cannot be read: it fails for good
├── TimeLimitExceeded      the job ran longer than it may
├── ClaimLost              the job was handed to another worker, or its queue deleted, while it ran
├── ProcessDied            the process of the pool that ran the job ended: a crash, os._exit, the memory killer
├── TooManySnoozes         Snooze was raised more often than `max_snoozes`
├── ResultInvalid          what a job returned cannot be kept as its result: it fails for good
├── JobStopped             raise_if_cancelled(): the job is to stop
├── JobFailed              to who waits for a job: it failed; `status` says how
│   ├── JobCancelled       likewise: it was asked to stop
│   └── ItemFailed         likewise: to who reads the result of an item of a flow
├── ResultGone             to who waits for a job: there is nothing of it, or of its result, any more
└── NotPlayed              in a test in memory: a call that needs a server, or a job that waits for another one
"""

from __future__ import annotations


class WorkerError(Exception):
    """The root."""


class ConfigurationError(WorkerError):
    pass


class ArgumentsInvalid(WorkerError, TypeError):
    pass


class BodyInvalid(WorkerError):
    pass


class TimeLimitExceeded(WorkerError):
    pass


class ClaimLost(WorkerError):
    pass


class ProcessDied(WorkerError):
    pass


class TooManySnoozes(WorkerError):
    pass


class ResultInvalid(WorkerError):
    pass


class JobStopped(WorkerError):
    pass


class JobFailed(WorkerError):
    """`status`: the job's custom status."""

    _named, _ended = "job", "has failed"

    def __init__(self, descriptor: str, status: str) -> None:
        super().__init__(descriptor, status)
        self.descriptor = descriptor
        self.status = status

    def __str__(self) -> str:
        text = f"{self._named} {self.descriptor} {self._ended}: {self.status.rstrip() or 'it has no status'}"
        if "RESULT_TOO_LARGE" in self.status:
            text += "\nstore such a result elsewhere, and return where it is; or raise max_result of the queue"
        return text


class JobCancelled(JobFailed):
    _ended = "was cancelled"


class ItemFailed(JobFailed):
    """`descriptor`: the number of the item; `status`: its last failure."""

    _named = "item"


class ResultGone(WorkerError, LookupError):
    pass


class NotPlayed(WorkerError):
    pass
