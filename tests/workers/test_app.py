"""Apps and their types of job: what a decorator may say, and what is refused at once."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pinlater_workers
from pinlater_workers import (
    App,
    ArgumentsInvalid,
    ConfigurationError,
    Constant,
    Delays,
    Exponential,
    Function,
    JobType,
    Linear,
    Never,
    RetryRules,
)
from pinlater_workers.envelope import read_envelope
from pinlater_workers.jobs.settings import JobSettings
from pinlater_workers.middleware import Middleware
from pinlater_workers.tracing import new_trace, read_trace, use_trace


def nothing() -> None: ...


def declared(app: App | None = None, **options: Any) -> JobType:
    return (app or App()).job(**{"queue": "q", **options})(nothing)


def test_a_job_type_is_the_plain_function_and_carries_its_name_and_text() -> None:
    app = App()

    @app.job(queue="sums")
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    assert add(1, b=2) == 3
    assert (add.name, add.__name__, add.__doc__) == ("add", "add", "Adds.")
    assert add.settings == JobSettings("sums")
    assert not add.is_coroutine
    assert app.job_types == {"add": add}
    assert app.find("add") is add
    assert app.find("subtract") is None


def test_a_job_is_pickled_and_copied_as_its_function_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_mails")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    code = "from pinlater_workers import App\napp = App()\n@app.job(queue='q')\ndef send(to: str) -> None: ..."
    exec(code, module.__dict__)
    send = module.send
    assert [pickle.loads(pickle.dumps(send, protocol)) for protocol in range(6)] == [send] * 6
    assert copy.copy(send) is copy.deepcopy({"job": send})["job"] is send
    options = pickle.loads(pickle.dumps(send.options(delay=5)))
    assert options.job("ada").body == send.body("ada")
    del module.send
    with pytest.raises(pickle.PicklingError, match="send"):
        pickle.dumps(send)


@pytest.mark.parametrize("package", ["pinlater", "pinlater_workers"])
def test_what_a_package_exports_is_seen_before_it_is_imported(package: str) -> None:
    code = f"import sys; import {package} as p; print(set(p.__all__) - set(dir(p)), '{package}.client' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["set()", "False"]


def test_a_coroutine_function_stays_one() -> None:
    @App().job(queue="q")
    async def twice(a: int) -> int:
        return 2 * a

    assert twice.is_coroutine
    assert asyncio.run(twice(2)) == 4


def test_defaults_give_ten_retries_and_an_hour() -> None:
    settings = declared().settings
    assert (settings.attempts_allowed, settings.time_limit_s, settings.priority) == (11, 3600.0, 1)


def by_hand(attempt: int, error: BaseException) -> float | None:
    return None if attempt > 3 else 1.0


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (Constant(3), Constant(3)),
        ("exponential first=1s cap=1m", Exponential(1, cap_s=60)),
        ([1, "5s", timedelta(minutes=1)], Delays([1, 5, 60])),
        (by_hand, Function(by_hand)),
        ("tests.workers.test_app:by_hand", Function(by_hand)),
        (RetryRules(Never()), Never()),
    ],
)
def test_a_retry_policy_may_be_said_in_many_ways(said: Any, meant: object) -> None:
    assert declared(retry=said).settings.retry.default == meant


def test_policies_for_types_of_exception_stand_beside_the_default_one() -> None:
    rules = declared(retry=[1, 2], retry_on={OSError: "never", "builtins:KeyError": [3]}).settings.retry
    assert rules == RetryRules(Delays([1, 2]), {OSError: Never(), KeyError: Delays([3])})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": ""}, "queue is ''; allowed: the name of a queue"),
        ({"attempts": 0}, "attempts is 0; allowed: 1 to 2147483647"),
        ({"attempts": True}, "attempts is True; allowed: 1 to 2147483647"),
        ({"attempts": "5x"}, "attempts is '5x'; allowed: 1 to 2147483647"),
        ({"priority": 128}, "priority is 128; allowed: 1 to 127"),
        ({"time_limit": -1}, "time_limit is -1; allowed: 1ms to 365d, as in 250ms, 90s, 1h30m, 2d"),
        ({"time_limit": 0}, "time_limit is 0; allowed: 1ms"),
        ({"time_limit": "soon"}, "time_limit is 'soon'"),
        ({"pool": "fork"}, "pool is 'fork'; allowed: thread, process or async"),
        ({"encoding": "pickle"}, "encoding is 'pickle'; allowed: json or msgpack"),
        ({"max_snoozes": -1}, "max_snoozes is -1; allowed: 0 to 2147483647"),
        (
            {"secret": "password"},
            r"secret is 'password'; allowed: a list of names of parameters, as in \[\"password\"\]",
        ),
        ({"secret": ["password"]}, "secret names 'password'; allowed: "),
        ({"retry": "sometimes"}, "retry is 'sometimes': .*exponential.*allowed: a policy"),
        ({"retry": 3}, "retry is 3; allowed: a policy"),
        ({"retry": []}, r"retry is \[\]: a list of no delays"),
        ({"retry": "nowhere:policy"}, "retry is 'nowhere:policy': importing nowhere failed: ModuleNotFoundError"),
        ({"retry_on": {"NoError": "never"}}, "'NoError' is no type of exception"),
        ({"retry_on": {int: "never"}}, "<class 'int'> is no type of exception"),
        ({"queue": "a b"}, "queue is 'a b'; allowed: the name of a queue: 1 to 64 letters, digits, _ and -"),
        ({"name": ""}, "a job named ''; allowed: 1 to 200 letters"),
        ({"name": "a/b"}, "a job named 'a/b'; allowed: 1 to 200 letters"),
    ],
)
def test_what_a_decorator_cannot_say_is_refused_with_what_is_allowed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        declared(**options)


@pytest.mark.parametrize("kind", ["job", "raw_job"])
def test_a_decorator_without_its_parentheses_or_queue_is_said(kind: str) -> None:
    decorator = getattr(App(), kind)
    for arguments, options in [((nothing,), {}), ((nothing,), {"queue": "q"}), (("q",), {}), ((), {})]:
        with pytest.raises(ConfigurationError, match=rf"write @app.{kind}\(queue=\.\.\.\) above the function"):
            decorator(*arguments, **options)


def test_a_number_alone_is_seconds() -> None:
    assert declared(time_limit="90").settings.time_limit_s == 90
    assert declared(retry="delays 1 2.5").settings.retry.default == Delays([1, 2.5])
    assert declared(retry="linear step=10 cap=60").settings.retry.default == Linear(10, cap_s=60)


def test_two_jobs_of_one_name_are_refused() -> None:
    app = App()
    declared(app)
    place = f"{__name__}:nothing"
    with pytest.raises(ConfigurationError, match=f"two jobs are named 'nothing', {place} and {place}; give"):
        declared(app)
    assert declared(app, name="nothing.again").name == "nothing.again"


def test_a_job_under_a_second_name_is_its_function() -> None:
    app = App()
    first = declared(app)
    second = app.job(queue="q", name="second")(first)
    assert second.function is nothing


def test_a_raw_job_takes_bytes_and_its_queue_has_no_other() -> None:
    app = App()

    @app.raw_job(queue="foreign")
    def take(body: bytes) -> int:
        return len(body)

    assert take(b"abc") == 3
    assert take.body(b"<xml/>") == b"<xml/>"
    assert app.raw("foreign") is take
    assert app.raw("q") is None
    assert app.find("take") is None
    assert app.job_types == {"take": take}
    for wrong in (("text",), (), (b"a", b"b")):
        with pytest.raises(ArgumentsInvalid, match="it is raw; allowed: one argument, the body as bytes"):
            take.enqueue(*wrong)
    with pytest.raises(ConfigurationError, match="two raw jobs for queue 'foreign': 'take' and 'other'"):
        app.raw_job(queue="foreign", name="other")(lambda body: None)
    assert app.find("other") is None


class Stamp(Middleware):
    def enqueue(self, headers: Any, job_name: str) -> None:
        headers["stamp"] = job_name


def test_what_is_enqueued_carries_the_headers_of_middleware_and_the_trace() -> None:
    app = App(middleware=[Stamp()])
    declared(app)
    trace = new_trace()
    with use_trace(trace):
        headers = app.headers("nothing")
    assert headers["stamp"] == "nothing"
    found = read_trace(headers)
    assert found is not None
    assert found.trace_id == trace.trace_id
    assert app.headers("nothing") == {"stamp": "nothing"}


class Number(Middleware):
    def enqueue(self, headers: Any, job_name: str) -> None:
        headers["number"] = 3


def test_a_header_that_is_no_text_is_refused_in_the_caller() -> None:
    with pytest.raises(TypeError, match="header 'number' of job 'nothing' is 3; allowed: texts"):
        declared(App(servers=["nobody.invalid"], middleware=[Number()])).enqueue()


def test_a_body_alone_has_no_headers() -> None:
    envelope = read_envelope(declared(App(middleware=[Stamp()])).body())
    assert envelope is not None
    assert envelope.headers == {}


def test_servers_are_a_list_a_cluster_or_what_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PINLATER_SERVER", "PINLATER_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    assert App().servers == ["127.0.0.1:9010"]
    assert App(servers=["a", "b:1"]).servers == ["a:9010", "b:1"]
    clusters = tmp_path / "clusters.toml"
    clusters.write_text('[clusters]\nmail = ["c:2"]\n')
    assert App(cluster="mail", clusters_file=clusters).servers == ["c:2"]
    monkeypatch.setenv("PINLATER_SERVER", "d:3")
    assert App().servers == ["d:3"]
    app = App(servers=["a"])
    app.use(servers=["e:4"])
    assert app.servers == ["e:4"]
    with pytest.raises(ConfigurationError, match="nobody"):
        _ = App(cluster="nobody", clusters_file=clusters).servers


@pytest.mark.parametrize(
    "use", [lambda app: app.client, lambda app: app.connect(), lambda app: declared(app).enqueue()]
)
def test_a_server_that_cannot_be_is_said_when_it_is_needed(use: Callable[[App], object]) -> None:
    with pytest.raises(ConfigurationError, match="server address 'a:b:c'"):
        use(App(servers=["a:b:c"]))


@pytest.mark.parametrize(
    ("delay", "run_after", "why"),
    [
        (-1, None, "0 seconds or more"),
        ("5 minutes", None, "'5 minutes'; allowed: 0 seconds or more, a text as in 30s"),
        (1, 1, "not both"),
        (None, "tomorrow", "allowed: an aware datetime"),
        (None, 1_790_000_005.5, "allowed: an aware datetime"),
        (None, 1_790_000_005, r"can only be seconds \(those are 2026-09-21, .*1790000005 \* 1000"),
        (None, 60, "say delay=60, in seconds"),
    ],
)
def test_a_time_that_cannot_be_is_refused_before_anything_is_sent(delay: Any, run_after: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        declared(App(servers=["nobody.invalid"])).enqueue(delay=delay, run_after=run_after)


def test_naming_the_framework_imports_neither_the_client_nor_an_extra() -> None:
    heavy = ["asyncio", "msgspec", "thriftpy2", "aiohttp", "prometheus_client", "statsd", "uvloop", "pinlater"]
    code = "import sys, pinlater_workers; " + f"print(sorted(set({heavy!r}) & set(sys.modules)))"
    code += "; from pinlater_workers import *; " + f"print(sorted(set({heavy[3:7]!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["[]", "[]", ""]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Celery'"):
        _ = pinlater_workers.Celery
