"""Apps and workers from files: one meaning with the decorators, and mistakes that are named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater_workers import App, ConfigurationError, Constant, Delays, Exponential, Never, load_app, load_file
from pinlater_workers.app.settings import WORKER_KEYS, WorkerSettings, queue_weights
from pinlater_workers.jobs.settings import JOB_KEYS, JobSettings

ROOT = Path(__file__).parents[2]
MODULE = """
from pinlater_workers import App

app = App(servers=["in-code:1"])

@app.job(queue="code", attempts=3, retry="never", time_limit="1m", priority=2)
def declared(a: int) -> int:
    return a

def plain(a: int) -> int:
    return a

def take(body: bytes) -> int:
    return len(body)

number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that only `import_paths` can find, by a name of its own."""
    name = f"jobs_of_{abs(hash(tmp_path))}"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / f"{name}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield name
    sys.modules.pop(name, None)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "jobs.toml"
    file.write_text(text)
    return file


def test_a_file_and_a_decorator_mean_the_same(tmp_path: Path, module: str) -> None:
    file = written(
        tmp_path,
        f"""
        servers = ["a:1", "b:2"]
        import_paths = ["lib"]
        [jobs.one]
        function = "{module}:plain"
        queue = "numbers"
        attempts = 4
        retry = "exponential first=1s cap=1m"
        retry_on = {{ OSError = "never", ValueError = [1, "2s"] }}
        time_limit = "1m30s"
        priority = 2
        pool = "process"
        encoding = "msgpack"
        max_snoozes = 5
        secret = ["a"]
        """,
    )
    app, _ = load_file(file)

    def plain(a: int) -> int:
        return a

    same = App().job(
        queue="numbers",
        name="one",
        attempts=4,
        retry=Exponential(1, cap_s=60),
        retry_on={OSError: Never(), ValueError: Delays([1, 2])},
        time_limit=90,
        priority=2,
        pool="process",
        encoding="msgpack",
        max_snoozes=5,
        secret=["a"],
    )(plain)
    one = app.job_types["one"]
    assert app.servers == ["a:1", "b:2"]
    assert one.settings == same.settings
    assert one.body(3) == same.body(3)
    assert one(3) == 3


def test_a_file_counts_before_what_code_says_and_leaves_the_rest(tmp_path: Path, module: str) -> None:
    file = written(
        tmp_path,
        f"""
        import_paths = ["lib"]
        app = "{module}:app"
        [jobs.declared]
        retry = "constant delay=3s"
        time_limit = "5m"
        [jobs.second]
        function = "{module}:declared"
        priority = 1
        [worker]
        queues = {{ code = 2 }}
        """,
    )
    app, worker = load_file(file)
    assert app.servers == ["in-code:1"]
    assert app.job_types["declared"].settings == JobSettings(
        "code", attempts=3, retry=app.job_types["declared"].settings.retry, time_limit_s=300, priority=2
    )
    assert app.job_types["declared"].settings.retry.default == Constant(3)
    second = app.job_types["second"]
    assert (second.settings.queue, second.settings.attempts, second.settings.priority) == ("code", 3, 1)
    assert second(4) == 4
    assert worker == WorkerSettings(queues={"code": 2})


def test_an_app_with_a_file_has_it_count_for_what_is_declared_later(tmp_path: Path) -> None:
    app = App(
        written(tmp_path, 'servers = ["a:1"]\nsource = "me"\n[jobs.later]\nqueue = "other"\n[worker]\nlease = "10s"')
    )

    @app.job(queue="mine", attempts=2)
    def later() -> None: ...

    assert later.settings == JobSettings("other", attempts=2)
    assert app.servers == ["a:1"]
    assert app.worker_settings.lease_s == 10
    app.check()


def test_a_producer_has_the_jobs_of_a_file_as_well(tmp_path: Path, module: str) -> None:
    text = f'import_paths = ["lib"]\n[jobs.one]\nfunction = "{module}:plain"\nqueue = "q"'
    app = App(written(tmp_path, text))
    assert app.find("one") is app.job_types["one"]
    assert app.job_types["one"](3) == 3


def test_a_raw_job_of_a_file(tmp_path: Path, module: str) -> None:
    text = f'import_paths = ["lib"]\n[jobs.take]\nfunction = "{module}:take"\nqueue = "foreign"\nraw = true'
    app, _ = load_file(written(tmp_path, text))
    raw = app.raw("foreign")
    assert raw is not None
    assert raw(b"abc") == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servers = [", "is no TOML: "),
        ("serverz = []", r"serverz is no key; allowed: .*\(did you mean servers\?\)"),
        ("servers = 3", r'servers is 3; allowed: a list of HOST:PORT, as in \["queue-1:9010"'),
        ('servers = ["a"]\ncluster = "b"', "it names servers and a cluster"),
        ("import_paths = [1]", "import_paths is .*allowed: a list of folders"),
        ("jobs = 1", r"jobs is 1; allowed: tables \[jobs.NAME\]"),
        ("[jobs]\na = 1", r"allowed: tables \[jobs.NAME\]"),
        ("worker = 1", "worker is 1"),
        ("[worker]\nconcurrency = 0", r"\[worker\]: concurrency is 0; allowed: 1 to 10000"),
        ("[worker]\nlease_s = 3", r"\[worker\]: lease_s is no key; allowed: .*\(did you mean lease\?\)"),
        ('[worker]\nlease = "1s"', r"\[worker\]: lease is '1s'; allowed: 3s to 1d, as in"),
        ("[worker]\nqueues = { a = 0 }", r"\[worker\]: queues is .*queue 'a' has weight 0; allowed: names"),
        ('[worker]\nlease = "soon"', r"\[worker\]: lease is 'soon'; allowed: 3s to 1d, as in"),
        ('[worker]\nqueues = { "a b" = 1 }', "no queue can have the name 'a b'; allowed: .*1 to 64 letters, digits"),
        ('[worker]\nqueues = "a=b"', "queue 'a' has weight 'b'; allowed: names"),
        ('[jobs.a]\nfunction = "JOBS:plain"\nqueue = "-ab"', r"\[jobs.a\]: queue is '-ab'; allowed: .*1 to 64 letters"),
        ('[worker]\nhttp = "here"', r"\[worker\]: http is 'here'; allowed: HOST:PORT, or nothing"),
        ("[worker]\ncreate_queues = 1", "create_queues is 1; allowed: true or false"),
        ("[jobs.a]", r"\[jobs.a\]: no job of that name is declared; known: none; .*function = \"MODULE:NAME\""),
        ('[jobs.a]\nfunction = "JOBS:plain"', r"\[jobs.a\]: queue is missing; allowed: the name of a queue"),
        ('[jobs.a]\nfunction = "JOBS:gone"\nqueue = "q"', r"\[jobs.a\]: function is .*JOBS has no gone"),
        ('[jobs.a]\nfunction = "JOBS:number"\nqueue = "q"', r"\[jobs.a\]: .*a int; allowed: a function"),
        ('[jobs.a]\nfunction = "plain"\nqueue = "q"', r"function is 'plain'; allowed: MODULE:NAME, as in"),
        ('[jobs.a]\nfunction = "not_there:f"\nqueue = "q"', "importing not_there failed: .* import_paths"),
        ('[jobs.a]\nfunction = "JOBS:plain"\nqueue = "q"\nretry = "x"', r"\[jobs.a\]: retry is 'x': a retry policy"),
        (
            '[jobs.a]\nfunction = "JOBS:plain"\nqueue = "q"\nretry_on = { Nope = "never" }',
            r"\[jobs.a\]: retry_on is .*: 'Nope' is no type of exception",
        ),
        ('app = "JOBS:app"\n[jobs.declared]\nfunction = "JOBS:plain"', "code declares the job: leave function out"),
        (
            'app = "JOBS:app"\n[jobs.declared]\nattempts = 0',
            r"\[jobs.declared\]: attempts is 0; allowed: 1 to 2147483647",
        ),
        ('app = "JOBS:number"', "app is 'JOBS:number', a int; allowed: an App"),
    ],
)
def test_a_mistake_is_named_with_file_table_key_value_and_what_is_allowed(
    tmp_path: Path, module: str, text: str, message: str
) -> None:
    file = written(tmp_path, f'import_paths = ["lib"]\n{text.replace("JOBS", module)}' if "JOBS" in text else text)
    with pytest.raises(ConfigurationError, match=message.replace("JOBS", module)) as refused:
        load_file(file)
    assert str(file) in str(refused.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone.toml cannot be read: No such file"):
        load_file(tmp_path / "gone.toml")


def test_an_app_is_found_by_its_name_or_by_its_file(tmp_path: Path, module: str) -> None:
    file = written(tmp_path, f'import_paths = ["lib"]\napp = "{module}:app"')
    app = load_app(f"file:{file}")
    assert load_app(f"{module}:app") is app


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("pinlater", "--app is 'pinlater'; allowed: MODULE:NAME, as in mail.jobs:app"),
        ("tests.workers.apps.leaves:app", "--app is .*: importing tests.workers.apps.leaves failed: SystemExit: 4$"),
        ("not_there:app", "--app is 'not_there:app': importing not_there failed: ModuleNotFoundError"),
        ("pinlater_workers:nothing", "pinlater_workers has no nothing"),
        ("pinlater_workers:App", "a type; allowed: an App, as in"),
    ],
)
def test_an_app_that_is_not_there_is_said_with_what_to_do(spec: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_app(spec)


@pytest.mark.parametrize(
    ("said", "meant"),
    [("a=3, b", {"a": 3, "b": 1}), (["a", "b=2"], {"a": 1, "b": 2}), ({"a": 4}, {"a": 4}), ({}, {})],
)
def test_queues_may_be_said_in_three_ways(said: object, meant: dict[str, int]) -> None:
    assert queue_weights(said) == meant


QUEUES_REFUSED = ["", " ,", "a=x", "a=", "a=0", "a,a", "=3", "a b", "a.b=2", {"a": "3"}, {"a": True}, {"-b": 1}, 3]
QUEUES_REFUSED += [["a=1001"], [1], ["x" * 65]]


@pytest.mark.parametrize("said", QUEUES_REFUSED)
def test_queues_that_cannot_be_are_refused(said: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        queue_weights(said)


def test_the_file_of_the_project_works_as_it_is_and_names_every_key() -> None:
    file = ROOT / "conf" / "jobs.toml"
    app, worker = load_file(file)
    assert worker.queues.keys() == {job_type.settings.queue for job_type in app.job_types.values()}
    assert app.job_types["thumbnail"].settings.attempts_allowed == 7
    assert app.job_types["thumbnail"].body("a.png", 64, "thumbnails")
    text = file.read_text()
    for key in [*JOB_KEYS, *WORKER_KEYS, "servers", "cluster", "clusters_file", "source", "import_paths", "app"]:
        assert f"\n{key} = " in text or f"\n# {key} = " in text or f"[jobs.thumbnail.{key}]" in text, key
