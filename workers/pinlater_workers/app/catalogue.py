"""The types of job of an app: those that code declares, those of its file, and the file's settings of either."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from pinlater_workers.app.settings import FileSettings
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.imports import add_import_paths, import_modules, import_object
from pinlater_workers.jobs.enqueue_calls import Producer
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.settings import JobSettings, job_settings

_NAME = re.compile(r"[\w.:-]{1,200}")
_NOT_BESIDE_CODE = ("function", "raw")


Include = Sequence[str] | Callable[[], Iterable[str]]


class Catalogue:
    """`include`: modules that declare jobs, or a function that says which. They, and functions that a file names, are
    imported when somebody first looks for a type, as they may import the app.
    """

    def __init__(self, producer: Producer, include: Include = ()) -> None:
        self._producer = producer
        self._include = include
        self._types: dict[str, JobType] = {}
        self._file = FileSettings()
        self._complete = include == ()

    def all(self) -> Mapping[str, JobType]:
        self._import_all()
        return MappingProxyType(self._types)

    @property
    def declared(self) -> Iterable[JobType]:
        """Those that code has declared so far."""
        return self._types.values()

    def find(self, name: str) -> JobType | None:
        """That of an envelope."""
        self._import_all()
        found = self._types.get(name)
        return None if found is None or found.settings.raw else found

    def raw(self, queue: str) -> JobType | None:
        """That of the jobs of a queue that have no envelope."""
        self._import_all()
        return next((each for each in self._types.values() if each.settings.raw and each.settings.queue == queue), None)

    def add(self, job_type: JobType) -> None:
        """ConfigurationError: a name that is taken, or none; a second raw type for its queue."""
        name = job_type.name
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"a job named {name!r}; allowed: 1 to 200 letters, digits, _ . : and -; give name="
            )
        if name in self._types:
            both = f"{_place(self._types[name])} and {_place(job_type)}"
            raise ConfigurationError(f"two jobs are named {name!r}, {both}; give one of them another name=")
        _check_raw([*self._types.values(), job_type])
        self._types[name] = job_type

    def tuned(self, name: str, settings: JobSettings) -> JobSettings:
        """What code says of a job, with what the file says on top. ConfigurationError."""
        table = self._file.jobs.get(name)
        if table is None:
            return settings
        where = self._file.where(f"jobs.{name}")
        for key in _NOT_BESIDE_CODE:
            if key in table:
                raise ConfigurationError(f"{where}: {key} is {table[key]!r}; code declares the job: leave {key} out")
        if "batch" in table and settings.batch is None:
            raise ConfigurationError(
                f"{where}: batch is {table['batch']!r}, and code declares a function that takes one job: "
                "leave batch out, or set batch= in code and take a Batch"
            )
        return job_settings(table, where, settings)

    def follow(self, file: FileSettings) -> None:
        """The file counts from here on, for types that are there and for those that come."""
        self._file = file
        self._complete = False
        for name, job_type in self._types.items():
            job_type.settings = self.tuned(name, job_type.settings)
        _check_raw(list(self._types.values()))

    def check(self) -> None:
        """ConfigurationError: the file names a job that no code declares and that has no function there."""
        self._import_all()
        for name in self._file.jobs.keys() - self._types.keys():
            raise ConfigurationError(
                f"{self._file.where(f'jobs.{name}')}: no job of that name is declared; known: "
                f'{", ".join(sorted(self._types)) or "none"}; for a new one set function = "MODULE:NAME"'
            )

    def _import_all(self) -> None:
        if self._complete:
            return
        self._complete = True  # from here on: what is imported may look for types itself
        add_import_paths(self._file.import_paths)
        try:
            import_modules(self._include() if callable(self._include) else self._include, "App(include=[...])")
            import_modules(self._file.include, f"{self._file.path}: include")
            for name, table in self._file.jobs.items():
                if "function" in table and name not in self._types:
                    self.add(self._from_file(name, table))
        except BaseException:
            self._complete = False
            raise

    def _from_file(self, name: str, table: Mapping[str, object]) -> JobType:
        where = self._file.where(f"jobs.{name}")
        found = import_object(table["function"], f"{where}: function")
        base = None
        if isinstance(found, JobType):
            base, found = found.settings, found.function
        if not callable(found):
            kind = type(found).__name__
            raise ConfigurationError(f"{where}: function is {table['function']!r}, a {kind}; allowed: a function")
        return JobType(self._producer, found, name, job_settings(table, where, base))


def _place(job_type: JobType) -> str:
    function = job_type.function
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', function)}"


def _check_raw(types: list[JobType]) -> None:
    names: dict[str, str] = {}
    for each in types:
        queue = each.settings.queue
        if each.settings.raw and names.setdefault(queue, each.name) != each.name:
            raise ConfigurationError(
                f"two raw jobs for queue {queue!r}: {names[queue]!r} and {each.name!r}; one is allowed"
            )
