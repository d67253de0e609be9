"""The e-mail campaign: its jobs in memory, and all of it on real servers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pinlater import JobState
from pinlater_workers import testing
from pinlater_workers.envelope import read_envelope
from tests.demo.examples import EXAMPLES, copied, processes_of, run, table


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    with importlib.import_module("sink").Sink() as sink:
        monkeypatch.setenv("MAILING_SMTP", sink.address)
        yield sink


@pytest.fixture
def mailing(sink: Any) -> ModuleType:
    return importlib.import_module("mailing")


def test_a_campaign_that_fails_half_way_goes_on_from_its_checkpoint(mailing: ModuleType, tmp_path: Path) -> None:
    recipients = tmp_path / "recipients.txt"
    wanted = [f"reader{number}@example.org" for number in range(250)]
    recipients.write_text("\n".join(wanted))
    with testing.in_memory(mailing.app) as jobs:
        mailing.campaign.enqueue(recipients, "News", breaks_at=150)
        jobs.run_all(only=jobs.runs[0])
    campaign, *mails = jobs.runs
    assert (campaign.state, campaign.attempts, campaign.delays_s) == (JobState.SUCCEEDED, 2, [1])
    assert campaign.status.startswith("250 mails enqueued\n")
    calls = [mailing.mail.arguments(read_envelope(mail.body))[0] for mail in mails]
    assert [address for address, _, _ in calls] == wanted
    assert len({id for _, _, id in calls}) == 250


def test_not_now_is_tried_again_soon_and_never_is_final(mailing: ModuleType, sink: Any) -> None:
    busy = testing.run(mailing.mail, "busy1@example.org", "News", "<1@example.com>")
    assert (busy.state, busy.delays_s) == (JobState.SUCCEEDED, [0.5])
    assert "Deferred: 450 4.2.1" in busy.status
    wrong = testing.run(mailing.mail, "nobody1@example.org", "News", "<2@example.com>")
    assert (wrong.state, wrong.attempts) == (JobState.FAILED, 1)
    assert "Fail: 550 5.1.1 no such user" in wrong.status
    again = testing.run(mailing.mail, "busy1@example.org", "News", "<1@example.com>")
    assert again.state is JobState.SUCCEEDED
    assert (sink.received, sink.duplicates, sink.deferred) == (2, 1, 1)


def test_a_mail_server_that_is_not_there_gets_more_time(mailing: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAILING_SMTP", "127.0.0.1:1")
    run = testing.run(mailing.mail, "reader1@example.org", "News", "<1@example.com>")
    assert (run.state, run.delays_s) == (JobState.FAILED, [2, 4, 6, 8])


def test_the_whole_campaign_sends_every_mail_once(tmp_path: Path) -> None:
    code, output = run([*copied(tmp_path, "campaign.py"), "--recipients", "120", "--rate", "60"])
    assert code == 0, output
    rows = table(output)
    assert (rows["mails received"], rows["duplicates"], rows["refused for good (5xx)"]) == ("116", "0", "4")
    assert rows["sent later (4xx)"] == "10"
    assert "the address book does not answer" in (tmp_path / "demo-output" / "worker.log").read_text()
    assert not processes_of(tmp_path)
