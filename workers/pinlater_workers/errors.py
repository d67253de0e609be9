"""The errors around a job, by no doing of its own; a retry policy may treat each in its own way.

WorkerError
├── ConfigurationError     a file, a decorator or a command line says what cannot be; for a person
├── ArgumentsInvalid       arguments that the job's function does not take (also a TypeError)
├── BodyInvalid            a body that says it is ours and cannot be read: it fails for good
├── TimeLimitExceeded      the job ran longer than it may
├── ClaimLost              the job was handed to another worker, or its queue deleted, while it ran
├── ProcessDied            the process of the pool that ran the job ended: a crash, os._exit, the memory killer
└── TooManySnoozes         Snooze was raised more often than `max_snoozes`
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
