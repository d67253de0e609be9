"""Types of job for an e-mail campaign: one that makes a job for each recipient, and the mail itself.

    pinlater-worker --app mailing:app --create-queues        # in this folder; MAILING_SMTP=HOST:PORT is the mail server

The queue of the mails can be held to what a mail provider allows, whatever the number of workers:

    pinlater queue set mails max_jobs_per_second=50/s

python campaign.py shows all of it.
"""

from __future__ import annotations

import os
import smtplib
from email.message import EmailMessage
from pathlib import Path

from pinlater_workers import App, Exponential, Fail, Snooze, current

app = App()

SLICE = 50
"""Recipients between two checkpoints."""

TIMEOUT_S = 10.0
SENDER = "news@example.com"


class Deferred(Exception):
    """The mail server says "not now" (4xx)."""


@app.job(queue="campaigns", retry="constant delay=1s", time_limit="10m")
def campaign(recipients: Path, subject: str, first: int = 0, breaks_at: int | None = None) -> None:
    """A job for each line of a file, from line `first` on.

    After each slice a checkpoint stores where the next one begins, so that another attempt, here or on another machine,
    goes on there. A worker that dies between the two repeats that one slice, with the same Message-IDs.
    `breaks_at`: the first attempt fails there, to show that.
    """
    context = current()
    addresses = recipients.read_text(encoding="utf-8").splitlines()
    for start in range(first, len(addresses), SLICE):
        if context.cancelled:
            raise Snooze(0)  # another worker goes on, and no attempt is spent
        if breaks_at is not None and context.attempt == 1 and start >= breaks_at:
            raise ConnectionError("the address book does not answer")
        numbered = enumerate(addresses[start : start + SLICE], start)
        mail.enqueue_many((address, subject, message_id(context.descriptor, line)) for line, address in numbered)
        context.checkpoint(campaign.body(recipients, subject, first=start + SLICE, breaks_at=breaks_at))
    context.set_status(f"{len(addresses):,} mails enqueued")


@app.job(queue="mails", attempts=5, retry="linear step=2s", retry_on={Deferred: Exponential(0.5)}, time_limit="1m")
def mail(address: str, subject: str, id: str) -> None:
    """One mail. "Not now" is tried again soon; "never" (5xx) is final; a server that is not there gets more time."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"], message["Message-ID"] = SENDER, address, subject, id
    message.set_content(f"Hello {address},\nthere is news.\n")
    try:
        with smtplib.SMTP(*mail_server(), timeout=TIMEOUT_S) as connection:
            connection.send_message(message)
    except smtplib.SMTPRecipientsRefused as refused:
        raise answer(*refused.recipients[address]) from None
    except smtplib.SMTPResponseException as refused:
        raise answer(refused.smtp_code, refused.smtp_error) from None


def answer(code: int, text: bytes | str) -> Exception:
    """What a refusal of the mail server means for the job."""
    said = text.decode(errors="replace") if isinstance(text, bytes) else text
    return Deferred(f"{code} {said}") if 400 <= code < 500 else Fail(f"{code} {said}")


def message_id(campaign: str, line: int) -> str:
    """The same whenever this recipient's turn in this campaign comes: a mail server can tell a repeat by it."""
    return f"<{campaign.replace(':', '.')}.{line}@example.com>"


def mail_server() -> tuple[str, int]:
    host, _, port = os.environ.get("MAILING_SMTP", "127.0.0.1:25").rpartition(":")
    return host, int(port)
