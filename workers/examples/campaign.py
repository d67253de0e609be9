"""An e-mail campaign, all of it: a server, a mail server that keeps nothing, a worker, and a report within 15 seconds.

    python workers/examples/campaign.py [--recipients N] [--rate PER_SECOND]

One job makes a job for each recipient, fails half-way, and goes on from its checkpoint. The queue of the mails hands
out so many per second and no more. Exit codes: 0 every mail came once; 1 it did not; 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from mailing import app, campaign, mail
from processes import OUTPUT, ExampleFailed, check, make_anew, run_to_its_end, server, worker
from progress import Progress
from sink import Sink

from pinlater import Client, JobFilter, JobState
from pinlater.data_folder.password import hash_password

LOOK_EVERY_S = 0.1


def main() -> int:
    parser = argparse.ArgumentParser(description="An e-mail campaign with a limit of mails per second.")
    parser.add_argument("--recipients", type=int, default=250, metavar="N")
    parser.add_argument("--rate", type=int, default=50, metavar="PER_SECOND", help="mails per second, at most")
    chosen = parser.parse_args()
    if chosen.recipients < 1 or chosen.rate < 1:
        parser.error("both are 1 or more")
    return run_to_its_end(lambda: _run(chosen.recipients, chosen.rate))


def _run(number: int, rate: int) -> int:
    make_anew(OUTPUT)
    recipients = OUTPUT / "recipients.txt"
    wrong = write_recipients(recipients, number)
    with ExitStack() as stack:
        sink = stack.enter_context(Sink())
        password = secrets.token_urlsafe()
        hash_file = OUTPUT / "admin.hash"
        hash_file.touch(0o600)
        hash_file.write_text(f"{hash_password(password)}\n")
        serving = stack.enter_context(server("--admin-password-hash-file", str(hash_file.resolve())))
        app.use(servers=[serving.address], source="campaign")
        stack.callback(app.close)
        for job_type in (campaign, mail):
            app.client.create_queue(job_type.settings.queue)
        app.client.update_queue(mail.settings.queue, password, set={"max_jobs_per_second": f"{rate}/s"})
        print(f"A server listens on {serving.address}, a mail server on {sink.address}.", flush=True)
        print(f"Queue {mail.settings.queue} hands out {rate} jobs per second.", flush=True)
        working = stack.enter_context(
            worker("mailing:app", serving.address, environment={"MAILING_SMTP": sink.address})
        )
        descriptor = campaign.enqueue(recipients, "News", breaks_at=number // 2)
        print(f"Enqueued one job for {number} recipients.", flush=True)
        _wait(app.client, descriptor, number, serving.process, working)
        failed = app.client.count(JobFilter(mail.settings.queue, JobState.FAILED))
        _show(sink, rate, failed)
    return 0 if (sink.received, sink.duplicates, failed) == (number - wrong, 0, wrong) else 1


def write_recipients(file: Path, number: int) -> int:
    """Every tenth is busy at first, every twenty-fifth not there: how many of those."""
    names = ["nobody" if n % 25 == 24 else "busy" if n % 10 == 9 else "reader" for n in range(number)]
    file.write_text("".join(f"{name}{n}@example.org\n" for n, name in enumerate(names)), encoding="utf-8")
    return names.count("nobody")


def _wait(client: Client, descriptor: str, number: int, *processes: subprocess.Popen[str]) -> None:
    """Until the campaign and all mails have ended, those that it enqueued twice included."""
    queue = mail.settings.queue
    with Progress(number) as progress:
        while True:
            job = client.lookup([descriptor])[descriptor]
            if job.state is JobState.FAILED:
                raise ExampleFailed(f"the campaign failed: {job.custom_status}")
            succeeded, failed = client.counts([JobFilter(queue, JobState.SUCCEEDED), JobFilter(queue, JobState.FAILED)])
            progress.update(succeeded, failed)
            if job.state is JobState.SUCCEEDED and succeeded + failed >= number and not _unfinished(client, queue):
                return
            check(*processes)
            time.sleep(LOOK_EVERY_S)


def _unfinished(client: Client, queue: str) -> int:
    waiting = [JobFilter(queue, JobState.PENDING), JobFilter(queue, JobState.PENDING, future=True)]
    return sum(client.counts([*waiting, JobFilter(queue, JobState.IN_PROGRESS)]))


def _show(sink: Sink, rate: int, failed: int) -> None:
    rows = [
        ("mails received", f"{sink.received:,}"),
        ("per second", f"{sink.per_second:,.1f}"),
        ("allowed per second", f"{rate:,}"),
        ("duplicates", f"{sink.duplicates:,}"),
        ("sent later (4xx)", f"{sink.deferred:,}"),
        ("refused for good (5xx)", f"{failed:,}"),
    ]
    width = max(len(name) for name, _ in rows)
    print()
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    raise SystemExit(main())
