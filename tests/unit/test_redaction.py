"""Secrets are taken out of texts, by where they stand and by what they are."""

from __future__ import annotations

import html
import json
from urllib.parse import quote, quote_plus

import pytest

from pinlater.errors import NoHealthyShards, NothingStored, OutcomeUnknown, QueueNotFound, StoreRefused, UnknownError
from pinlater.redaction import ANYWHERE_CHARS, MASK, SHORTEST_CHARS, Secrets, redact, redact_url, secrets_of_url


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests of this process made known as secret, as the word "password", counts for none of these."""
    monkeypatch.setattr("pinlater.redaction.SECRETS", Secrets())


URLS = [
    "redis://:{}@h:6379/0",
    "redis://u:{}@h/0?prefix=a",
    "redis://{}@h/0",
    "redis://h/0?password={}",
    "rediss://h:6380/0?prefix=a&password={}&ssl_ca_certs=/ca.pem",
    "rediss://h/0?ssl_keyfile=/key.pem&ssl_password={}",
    "mysql+pymysql://u:{}@h:3306/db",
    "mysql+pymysql://u@h/db?password={}",
    "mysql+pymysql://u@h/db?charset=utf8mb4&passwd={}",
    "mysql+pymysql://u@h/db?ssl_key=/k.pem&ssl_key_password={}",
    "mysql+mysqldb://u:{}@h/db?unix_socket=/run/db.sock",
    "mysql+mysqldb://u@h/db?Password={}",
    "mysql+pymysql://u@h/db?passwrd={}",
    "postgres://u:{}@h/db",
    "1=redis://u:{}@h/0",
    "a-b=redis://u:{}@h/0",
    "redis:/u:{}@h/0",
    "redis//:{}@h/0",
    "redis:u:{}@h",
    "u:{}@h:6379",
    "redis://u:{}",
    "sqlite://u:{}@h/path",
]
SECRETS = ["geheim", "a/geheim", "a#geheim", "a?geheim", "a@geheim", "12/geheim", "geheim@b", "a:geheim", "[geheim]",
           "ge%2Fgeheim", "geheim+geheim", "a=geheim", "12?geheim", "geheim%"]  # fmt: skip


@pytest.mark.parametrize("form", URLS)
@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_is_left_in_a_url(form: str, secret: str) -> None:
    if form == "redis://u:{}" and secret in ("12/geheim", "a@geheim"):
        return  # this is a host with a port and a database, or a host behind a password
    shown = redact_url(form.format(secret))
    assert "geheim" not in shown
    assert redact_url(shown) == shown, "what is shown is shown as it is"


@pytest.mark.parametrize("form", [each for each in URLS if "//" in each])
@pytest.mark.parametrize("secret", ["geheim-1", "geheim/1", "geheim%2F1", "geheim@1"])
def test_what_a_url_holds_is_known_wherever_it_turns_up(form: str, secret: str) -> None:
    secrets = Secrets()
    secrets.keep(secrets_of_url(form.format(secret)))
    assert "geheim" not in secrets.redact(f"the driver says: bad login {secret!r}, {secret}!")


@pytest.mark.parametrize(
    "url",
    [
        "redis://h:6379/0?prefix=mail-2", "rediss://[::1]:6379/0", "mysql+pymysql://u@h:3306/db?charset=utf8mb4",
        "sqlite:////a/b:c@d?e=f", "http://127.0.0.1:9011/", "redis://h", "1=redis://h:1/2",
    ],
)  # fmt: skip
def test_a_url_without_secrets_is_shown_as_it_is(url: str) -> None:
    assert redact_url(url) == url
    assert redact(f"see {url}, again") == f"see {url}, again"


@pytest.mark.parametrize(
    "spell",
    [str, quote, quote_plus, repr, json.dumps, html.escape, lambda text: repr(text.encode()), lambda text: f"x{text}y"],
)
def test_a_known_secret_is_found_in_every_spelling(spell: object) -> None:
    secret = 'gé"h<e&im/1 \\'
    secrets = Secrets()
    secrets.keep([secret])
    assert callable(spell)
    shown = secrets.redact(f"before {spell(secret)} after")
    assert MASK in shown
    assert "im/1" not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


def test_short_secrets_are_not_looked_for_in_other_words() -> None:
    secrets = Secrets()
    tiny, short, long = "q" * (SHORTEST_CHARS - 1), "w" * (ANYWHERE_CHARS - 1), "e" * ANYWHERE_CHARS
    secrets.keep(["", "*", MASK, "pinlater", tiny, short, long])
    text = f"pinlater {tiny} a{short} {short} {short}b a{long}b"
    assert secrets.redact(text) == f"pinlater {tiny} a{short} {MASK} {short}b a{MASK}b"


def test_a_password_that_is_the_user_or_the_database_hides_neither() -> None:
    assert list(secrets_of_url("mysql+pymysql://letters:letters@h/letters")) == []
    for url in ("redis+sentinel://s1:26379,s2:26380,[::1]:5/jobs/0?wait=1", "redis+cluster://n1:7001,n2/?shards=16"):
        assert list(secrets_of_url(url)) == []
        assert redact_url(url) == url
    assert list(secrets_of_url("redis+sentinel://s1:26379,s2:geheim/jobs")) == ["geheim"]
    assert redact_url("mysql+pymysql://letters:letters@h/letters") == f"mysql+pymysql://letters:{MASK}@h/letters"


@pytest.mark.parametrize("kind", [NothingStored, OutcomeUnknown, NoHealthyShards, StoreRefused, UnknownError])
def test_an_error_that_repeats_what_a_store_says_has_no_secret_in_it(kind: type[NothingStored]) -> None:
    error = kind("no answer from mysql+pymysql://u@h/db?password=geheim (2003)")
    assert "geheim" not in error.message + str(error) + error.wire_message() + repr(error)


def test_an_error_that_repeats_what_the_caller_says_tells_nothing_of_our_secrets() -> None:
    """Else a caller could try passwords as names of queues, and see which one is masked."""
    guess = "redis://:guess@h"
    assert guess in QueueNotFound.of(guess).message


def test_a_long_text_takes_no_longer_than_its_length() -> None:
    """Twice as long would take four times as long otherwise: hours."""
    text = f"{'a' * 2_000_000}://u:geheim@h {'b' * 2_000_000}"
    assert "geheim" not in redact(text)


def test_a_text_goes_on_behind_a_masked_url() -> None:
    text = "mysql+pymysql://u@h/db?password={}: it cannot be reached: is it running?"
    assert redact(text.format("geheim")) == text.format(MASK)
