"""Types of job with batch=: what they may be, in code and in files, and what a type checker says of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pinlater_workers import App, Batch, ConfigurationError, load_file, testing

ROOT = Path(__file__).parents[2]

CHECKED = """
from dataclasses import dataclass
from pinlater_workers import App, Batch

app = App()

@dataclass
class Document:
    id: int

@app.job(queue="search", batch=100, wait="200ms", attempts=3)
def index(batch: Batch[Document]) -> None:
    for job in batch:
        reveal_type(job.arguments)
        job.fail(ValueError())
        job.fail("text")  # error: arg-type
    reveal_type(batch.arguments)

@app.job(queue="search", batch=100)
async def index_async(batch: Batch[int]) -> None: ...

@app.raw_job(queue="raw", batch=100)
def lines(batch: Batch[bytes]) -> None: ...

@app.job(queue="search")
def single(number: int) -> None: ...

index(Document(1))
index(Document("x"))  # error: arg-type
index.body(3)  # error: arg-type
index_async.body(3)
index_async.body("3")  # error: arg-type
lines.body(b"x")
lines.body("x")  # error: arg-type
single.body(3)
single.body("3")  # error: arg-type

@app.job(queue="search", batch=100)  # error: arg-type
def no_batch(number: int) -> None: ...

@app.job(queue="search", batch=100, time_limit=b"x")  # error: call-overload
def no_limit(batch: Batch[int]) -> None: ...
"""


def test_a_type_checker_knows_what_one_job_of_a_batch_takes(tmp_path: Path) -> None:
    (tmp_path / "checked.py").write_text(CHECKED)
    mypy = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "setup.cfg"), str(tmp_path / "checked.py")]
    found = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    lines = [line.split(":", 2)[1:] for line in found.stdout.splitlines() if "checked.py:" in line]
    errors = {int(number) for number, text in lines if " error: " in text}
    assert errors == {number for number, line in enumerate(CHECKED.splitlines(), 1) if "# error" in line}, found.stdout
    arguments, all_arguments = [text for _, text in lines if "Revealed type" in text]
    assert arguments.endswith('"checked.Document"')
    assert all_arguments.endswith('list[checked.Document]"')


def declared(function: Any, **options: Any) -> testing.JobType:
    return App(servers=["127.0.0.1:1"]).job(queue="search", **options)(function)


def takes_many(batch: Batch[int], more: int) -> None: ...


def takes_one(number: int) -> None: ...


def takes_by_name(*, batch: Batch[int]) -> None: ...


def takes_batch(batch: Batch[int]) -> None: ...


def takes_anything(batch) -> None:  # type: ignore[no-untyped-def]
    ...


def takes_what_nothing_carries(batch: Batch[Path.__class__]) -> None:  # type: ignore[name-defined]
    ...


@pytest.mark.parametrize("function", [takes_many, takes_one, takes_by_name])
def test_a_function_that_takes_no_batch_is_refused(function: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"has batch= and takes .*; allowed: one parameter, as in \(batch: Batch"
    ):
        declared(function, batch=10)


def test_a_batch_of_what_no_body_carries_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="allowed: what msgspec"):
        declared(takes_what_nothing_carries, batch=10)


def test_a_function_of_a_batch_wants_to_be_told_how_many() -> None:
    with pytest.raises(ConfigurationError, match="takes a Batch: set the most jobs of one, as in batch=100"):
        declared(takes_batch)


def test_without_an_annotation_everything_that_a_body_carries_is_taken() -> None:
    assert declared(takes_anything, batch=1).body({"a": [1]})
    assert declared(takes_batch, batch=10).settings.batch_wait_s == 0.2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"batch": 0}, "batch is 0; allowed: 1 to 10000"),
        ({"batch": 10_001}, "allowed: 1 to 10000"),
        ({"batch": "many"}, "batch is 'many'"),
        ({"batch": 10, "wait": "11m"}, "wait is '11m'; allowed: 0s to 10m"),
        ({"batch": 10, "wait": -1}, "wait is -1; allowed: 0s to 10m"),
        ({"wait": 1}, "wait is how long jobs wait for their batch; set batch too, or leave it out"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        declared(takes_batch if "batch" in options else takes_one, **options)


def from_file(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> App:
    (path / "batched_by_file.py").write_text(
        "from pinlater_workers import App, Batch\n"
        "app = App(servers=['127.0.0.1:1'])\n"
        "@app.job(queue='search', batch=100)\n"
        "def index(batch: Batch[int]) -> None: ...\n"
        "@app.job(queue='search')\n"
        "def single(number: int) -> None: ...\n"
        "def plain(batch: Batch[int]) -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(path))
    monkeypatch.delitem(sys.modules, "batched_by_file", raising=False)
    (path / "jobs.toml").write_text(text)
    return load_file(path / "jobs.toml")[0]


def test_a_file_says_batch_and_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        'app = "batched_by_file:app"\n[jobs.index]\nbatch = 50\nwait = "1s"\n'
        '[jobs.plain]\nfunction = "batched_by_file:plain"\nqueue = "search"\nbatch = 7\n'
    )
    types = from_file(tmp_path, text, monkeypatch).job_types
    assert (types["index"].settings.batch, types["index"].settings.batch_wait_s) == (50, 1.0)
    assert types["plain"].settings.batch == 7
    assert types["plain"].is_batch


def test_a_file_makes_no_batch_of_what_code_declares_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigurationError, match=r"jobs.single.*batch is 5, and code declares a function that takes one job"
    ):
        from_file(tmp_path, 'app = "batched_by_file:app"\n[jobs.single]\nbatch = 5\n', monkeypatch)
