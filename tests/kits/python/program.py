"""The trial's program in Python, with `pinlater_workers`.

    program.py worker CONFIG.json        program.py producer CONFIG.json

The worker is the command `pinlater-worker`, which imports this file as its app.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from pinlater import ExtendedJob, Job, PinLaterError, Tls
from pinlater_workers import (
    Action,
    App,
    Fail,
    JobContext,
    Middleware,
    Outcome,
    Retry,
    Snooze,
    StopReason,
    WorkerError,
    current,
)
from pinlater_workers.errors import ClaimLost

VARIABLE = "TRIAL_CONFIG"
"""Names the file for the import by the command."""

ENDS = {
    Action.RETRY: "retry",
    Action.FAIL: "failed",
    Action.SNOOZE: "snoozed",
    Action.CANCEL: "cancelled",
    Action.GIVE_BACK: "handed_back",
}


class Ledger(Middleware):
    """What happens to jobs here, a line of JSON for each event."""

    def __init__(self, path: str, worker: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._worker = worker

    def write(self, event: str, **more: object) -> None:
        line = {"at_ms": time.time_ns() // 1_000_000, "worker": self._worker, "event": event, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def before(self, context: JobContext) -> None:
        if context.envelope is None:
            digest = hashlib.sha256(context.body).hexdigest()
            self.write("begin", job=context.descriptor, name=None, sha256=digest, length=len(context.body))
            return
        named, attempt = context.envelope, context.attempt
        self.write("begin", job=context.descriptor, name=named.job, arguments=named.kwargs, attempt=attempt)

    def after(self, context: JobContext, result: Any) -> None:
        self.write("end", job=context.descriptor, outcome="succeeded")

    def error(self, context: JobContext, exception: BaseException, outcome: Outcome) -> None:
        is_lost = isinstance(exception, ClaimLost) or context.cancel_reason is StopReason.CLAIM_LOST
        self.write("end", job=context.descriptor, outcome="lost" if is_lost else ENDS[outcome.action])


class Failing(Middleware):
    """Where it is only told. (What comes before and after a job is part of its attempt.)"""

    def error(self, context: JobContext, exception: BaseException, outcome: Outcome) -> None:
        raise RuntimeError("this hook fails")


class Started(logging.Handler):
    """Notes that the worker begins, which it logs once it heeds signals."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "pinlater_workers.cli" and ", queues " in record.getMessage():
            ledger.write("started")
            logging.getLogger("pinlater_workers").removeHandler(self)


CONFIG: dict[str, Any] = json.loads(Path(os.environ.get(VARIABLE) or sys.argv[2]).read_text())
ledger = Ledger(CONFIG["ledger"], CONFIG["name"])
app = App(
    servers=CONFIG["servers"],
    tls=Tls(ca=CONFIG["ca_file"]) if CONFIG["ca_file"] else None,
    token=Path(CONFIG["token_file"]) if CONFIG["token_file"] else None,
    middleware=[ledger, Failing()] if CONFIG["failing_hooks"] else [ledger],
)
QUEUE = next(iter(CONFIG["queues"]), "none")
"""A type has one; the trial's jobs name theirs when they are enqueued."""


# -- the types of job --------------------------------------------------------------------------------------------------


@app.job(queue=QUEUE, name="trial.noop")
def noop() -> None:
    return None


@app.job(queue=QUEUE, name="trial.sleep")
def sleep(ms: int) -> None:
    """Until it is cancelled or its claim is lost; a worker that stops gives it the time that it gives to any job."""
    context, ends_s = current(), time.monotonic() + ms / 1000
    if context.wait(ms / 1000):
        while context.cancel_reason not in (StopReason.CANCELLED, StopReason.CLAIM_LOST):
            if time.monotonic() > ends_s:
                return
            time.sleep(0.01)
        ledger.write("cancel" if context.cancel_reason is StopReason.CANCELLED else "lost", job=context.descriptor)
        context.raise_if_cancelled()


@app.job(queue=QUEUE, name="trial.stubborn")
def stubborn(ms: int) -> None:
    time.sleep(ms / 1000)


def returned() -> None:
    """A handler that has a time limit is about to end."""
    why = "time_limit" if current().cancel_reason is StopReason.TIME_LIMIT else None
    ledger.write("returned", job=current().descriptor, why=why)


@app.job(queue=QUEUE, name="trial.limited", time_limit=1)
def limited(ms: int) -> None:
    current().wait(ms / 1000)
    returned()
    current().raise_if_cancelled()


@app.job(queue=QUEUE, name="trial.limited_stubborn", time_limit=1)
def limited_stubborn(ms: int) -> None:
    time.sleep(ms / 1000)
    returned()


@app.job(queue=QUEUE, name="trial.fail_once")
def fail_once() -> None:
    if current().attempt == 1:
        raise RuntimeError("the first attempt fails")


@app.job(queue=QUEUE, name="trial.raise")
def raise_always(message: str) -> None:
    raise RuntimeError(message)


@app.job(queue=QUEUE, name="trial.fail")
def fail(message: str) -> None:
    raise Fail(message)


@app.job(queue=QUEUE, name="trial.retry_after")
def retry_after(ms: int) -> None:
    if current().attempt == 1:
        raise Retry(after=ms / 1000)


@app.job(queue=QUEUE, name="trial.snooze")
def snooze(ms: int) -> None:
    envelope = current().envelope
    if envelope is not None and not envelope.snoozes:
        raise Snooze(after=ms / 1000)


@app.job(queue=QUEUE, name="trial.progress")
def progress(percent: float, message: str, ms: int) -> None:
    current().progress(percent / 100, message)
    sleep.function(ms)


@app.job(queue=QUEUE, name="trial.log")
def log(lines: list[str]) -> None:
    for line in lines:
        current().log(line)


@app.job(queue=QUEUE, name="trial.result", keep_result=True)
def result(value: Any) -> Any:
    return value


@app.job(queue=QUEUE, name="trial.text")
def text(text: str) -> None:
    return None


def raw(body: bytes) -> None:
    return None


for name in CONFIG["raw_queues"] or ():
    app.raw_job(queue=name, name=f"raw.{name}")(raw)
if __name__ != "__main__":
    logging.getLogger("pinlater_workers").addHandler(Started())


# -- the worker and the producer ---------------------------------------------------------------------------------------


def work() -> None:
    main = import_module("pinlater_workers.cli").main
    queues = ",".join(f"{name}={weight}" for name, weight in CONFIG["queues"].items())
    arguments = ["--app", "program:app", "--queues", queues]
    arguments += ["--concurrency", str(CONFIG["slots"]), "--grace", f"{CONFIG['drain_ms']}ms", "--name", CONFIG["name"]]
    try:
        main(arguments)
    except SystemExit as ended:
        if not ended.code:
            ledger.write("stopped")
        raise


def enqueued(command: dict[str, Any]) -> tuple[str, Job | ExtendedJob]:
    """The queue and the job of a command."""
    options = {key: value for key, value in (command.get("options") or {}).items() if value is not None}
    if "body_base64" in command:
        return command["queue"], Job(base64.b64decode(command["body_base64"]), attempts_allowed=11)
    job_type = app.find(command["name"])
    assert job_type is not None, command
    chosen: dict[str, Any] = {key: options[key] for key in ("priority", "attempts") if key in options}
    if "delay_ms" in options:
        chosen["delay"] = options["delay_ms"] / 1000
    for option, own in (("dedupe_key", "unique"), ("serialize_key", "serialize"), ("group", "group")):
        if option in options:
            chosen[own] = options[option].replace("{", "{{").replace("}", "}}")
    if "keep_result_ms" in options:
        chosen["keep_result"] = True
    return command["queue"], job_type.options(**chosen).job(**command["kwargs"])


def answer(command: dict[str, Any]) -> dict[str, Any]:
    if "enqueue" in command:
        queue, job = enqueued(command["enqueue"])
        return {"descriptor": app.client.enqueue(queue, job, resend=True)}
    if "enqueue_many" in command:
        made = [enqueued(each) for each in command["enqueue_many"]]
        descriptors = app.client.enqueue(made[0][0], [job for _, job in made], resend=True)
        return {"descriptors": list(descriptors)}
    wanted = command["wait"]
    info = app.client.wait(wanted["descriptor"], timeout=wanted["timeout_ms"] / 1000)
    if info is None:
        return {"state": "gone", "result": None}
    state = "cancelled" if info.cancelled else info.state.name.lower()
    return {"state": state, "result": json.loads(info.result.partition(b"\n")[2]) if info.result else None}


def produce() -> None:
    for line in sys.stdin:
        try:
            made = answer(json.loads(line))
        except (PinLaterError, WorkerError, TimeoutError, ValueError) as error:
            told = {"kind": type(error).__name__, "message": str(error)}
            made = {"error": told | {"retryable": bool(getattr(error, "retryable", False))}}
        print(json.dumps(made), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "producer":
        produce()
    else:
        os.environ[VARIABLE] = sys.argv[2]
        sys.path.insert(0, str(Path(__file__).parent))
        work()
