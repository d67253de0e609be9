"""What a command says that waits until something is empty."""

from __future__ import annotations

import pytest

from pinlater.cli import progress
from pinlater.cli.progress import Left, wait_until_empty


def test_without_a_terminal_what_is_left_is_said_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_SAY_S", 0.0)
    monkeypatch.setattr(progress, "_PAUSE_S", 0.0)
    looks = iter([Left("2 jobs left: 2 of mail_dead"), Left("1 job left: 1 of mail_dead"), Left("", is_empty=True)])
    assert wait_until_empty(lambda: next(looks), "interrupted").is_empty
    assert capsys.readouterr() == (
        "",
        "pinlater: 2 jobs left: 2 of mail_dead; waiting\npinlater: 1 job left: 1 of mail_dead; waiting\n",
    )
