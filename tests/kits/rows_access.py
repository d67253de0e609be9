"""Rows of TLS and tokens."""

from __future__ import annotations

import time
from pathlib import Path

from pinlater.model import JobState
from tests.kits.programs import job_command
from tests.kits.site import PASSWORD
from tests.kits.trial import Stand, row
from tests.server.certificates import Authority

AWAY_S = 6.0
"""Every server knows a change of a token after two seconds; in the others one that no server knows is refused twice."""


def token_file(stand: Stand, name: str, *roles: str) -> str:
    """The file of a new token. Without roles: of one that no server knows."""
    path = stand.secure.folder / f"{name}.token"
    made = stand.secure.token(name, *roles) if roles else f"plt_{'x' * 43}"
    path.touch(mode=0o600)
    path.write_text(made + "\n")
    return str(path)


@row("Over TLS and with tokens, a producer's jobs run on a worker.")
def tls_and_tokens(stand: Stand) -> None:
    site = stand.secure
    queue = site.queue()
    web, work = token_file(stand, "web", "producer"), token_file(stand, "work", "worker")
    with site.producer(token_file=web) as producer, site.worker(queue, token_file=work) as worker:
        jobs = [producer.enqueue(queue, "trial.text", {"text": "ä"}) for _ in range(5)]
        worker.ledger.has_once(site.ended(jobs))


@row("A large body crosses TLS.")
def tls_with_a_large_body(stand: Stand) -> None:
    site = stand.secure
    queue = site.queue()
    both = token_file(stand, "both", "producer", "worker")
    with site.producer(token_file=both) as producer, site.worker(queue, token_file=both) as worker:
        job = producer.enqueue(queue, "trial.text", {"text": "x" * 900_000})
        worker.ledger.has_once(site.ended([job]))
        assert len(worker.ledger.begins(job)[0]["arguments"]["text"]) == 900_000


@row("A server whose certificate was signed by somebody else is not trusted: nothing is sent to it.")
def wrong_authority(stand: Stand) -> None:
    site = stand.secure
    (site.folder / "foreign").mkdir(exist_ok=True)
    foreign = Authority(Path(site.folder / "foreign"))
    queue = site.queue()
    web = token_file(stand, "web2", "producer")
    with site.producer(token_file=web, ca_file=foreign.ca) as producer:
        assert "error" in producer.ask({"enqueue": job_command(queue, "trial.noop")})


@row("A token that no server knows is refused, by an error that is not one to try again.")
def wrong_token(stand: Stand) -> None:
    site = stand.secure
    queue = site.queue()
    with site.producer(token_file=token_file(stand, "wrong")) as producer:
        error = producer.ask({"enqueue": job_command(queue, "trial.noop")})["error"]
    assert error["retryable"] is False, error


@row("A token that may only read jobs enqueues none.")
def token_without_the_right(stand: Stand) -> None:
    site = stand.secure
    queue = site.queue()
    with site.producer(token_file=token_file(stand, "reader", "viewer")) as producer:
        error = producer.ask({"enqueue": job_command(queue, "trial.noop")})["error"]
    assert error["retryable"] is False, error


@row("A worker whose token is replaced in its file goes on with the new one.")
def token_is_exchanged(stand: Stand) -> None:
    site = stand.secure
    queue = site.queue()
    path = token_file(stand, "first", "worker", "producer")
    with site.worker(queue, token_file=path) as worker:
        job = site.enqueue(queue, "trial.noop")
        worker.ledger.has_once(site.ended([job]))
        other = token_file(stand, "second", "worker", "producer")
        Path(other).replace(path)
        site.client.delete_token("first", PASSWORD)
        job = site.enqueue(queue, "trial.noop")
        worker.ledger.has_once(site.ended([job]))
        assert site.info(job).state is JobState.SUCCEEDED


@row("A worker whose token is revoked ends with exit code 1: no server takes what it says any more.")
def token_is_revoked(stand: Stand) -> None:
    site = stand.secure
    queue = site.queue()
    with site.worker(queue, token_file=token_file(stand, "revoked", "worker")) as worker:
        site.client.delete_token("revoked", PASSWORD)
        worker.fails()


@row("A worker whose token loses the right to its queue for a while keeps trying, and works when it is back.")
def right_comes_back(stand: Stand) -> None:
    site = stand.secure
    queue = site.queue()
    path = token_file(stand, "changing", "worker")
    with site.worker(queue, token_file=path) as worker:
        site.token("changing", "viewer")
        jobs = [site.enqueue(queue, "trial.noop")]  # the poll that waits may still bring this one, and ends
        time.sleep(AWAY_S)
        jobs.append(site.enqueue(queue, "trial.noop"))
        site.token("changing", "worker")
        worker.ledger.has_once(site.ended(jobs))
