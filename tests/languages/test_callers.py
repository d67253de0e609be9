"""A caller in each language goes through one scenario, in each form of the protocol that its library has."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pinlater import Client, Tls
from pinlater.errors import Forbidden
from tests.languages.builders import BUILDERS
from tests.languages.conftest import serving
from tests.languages.scenario import PASSWORD, STEPS, Caller, KeptServer, expected, lines_of
from tests.server.certificates import Authority

HOST = "localhost"
IDLE_S = 5.0
"""After so long a server closes a connection that carries nothing."""

ONLY_BINARY = {"perl"}
"""Languages whose library has no compact protocol."""

WITHOUT_TLS = {"rust"}
WITHOUT_CERTIFICATES = {"c"}
"""Whose libraries show none."""

WITHOUT_NAMES = {"c"}
"""Whose libraries take any certificate of an authority that they trust, whatever the host."""

UP_TO_16_KIB = {"c"}
"""Whose libraries break over TLS where an answer is longer than a record of it, 16 KiB."""

FORMS = ["framed-binary", "framed-compact", "buffered-binary", "buffered-compact"]
EACH = [(language, form) for language in BUILDERS for form in FORMS if "binary" in form or language not in ONLY_BINARY]
OVER_TLS = [language for language in BUILDERS if language not in WITHOUT_TLS]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built_callers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Caller]:
    """Builds a caller once."""
    made: dict[str, Caller] = {}

    def build(language: str) -> Caller:
        if language not in made:
            made[language] = BUILDERS[language](tmp_path_factory.mktemp(language))
        return made[language]

    return build


@pytest.fixture(scope="module")
def kept(password_hash: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptServer]:
    """One that closes idle connections."""
    server = KeptServer(
        tmp_path_factory.mktemp("kept"), "--admin-password-hash", password_hash, "--idle-timeout", f"{IDLE_S:.0f}s"
    )
    yield server
    server.stop()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def secure(authority: Authority, name: str) -> list[str]:
    cert, key = authority.issue(name, HOST)
    return ["--tls-cert", cert, "--tls-key", key, "--api", "none", "--http", "none"]


@pytest.fixture(scope="module")
def secured(
    authority: Authority, password_hash: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, str]]:
    """The port of a server over TLS, and a token that it knows."""
    arguments = [*secure(authority, "secured"), "--admin-password-hash", password_hash]
    token = f"plt_{'c' * 43}"
    with serving(tmp_path_factory.mktemp("secured"), *arguments) as port:
        with Client(f"{HOST}:{port}", tls=Tls(authority.ca)) as client:
            client.update_token("caller", hashlib.sha256(token.encode()).hexdigest(), ["admin"], PASSWORD)
        yield port, token


@pytest.fixture(scope="module")
def mutual(authority: Authority, password_hash: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server that takes callers with a certificate alone."""
    arguments = [*secure(authority, "mutual"), "--tls-client-ca", authority.ca, "--admin-password-hash", password_hash]
    with serving(tmp_path_factory.mktemp("mutual"), *arguments) as port:
        yield port


@pytest.mark.parametrize(("language", "form"), EACH)
def test_a_caller_makes_its_calls_and_outlasts_an_idle_time_and_a_restart(
    built_callers: Callable[[str], Caller], kept: KeptServer, queue: str, language: str, form: str
) -> None:
    caller = built_callers(language)
    command = caller.command("127.0.0.1", kept.port, form, None, "", queue)
    lines = lines_of(command, caller.folder, lambda: time.sleep(IDLE_S + 2), kept.restart)
    assert lines == expected("anonymous", "broken")


@pytest.mark.parametrize("language", OVER_TLS)
def test_a_caller_makes_its_calls_over_tls_with_a_token(
    built_callers: Callable[[str], Caller],
    authority: Authority,
    secured: tuple[int, str],
    queue: str,
    language: str,
) -> None:
    port, token = secured
    caller = built_callers(language)
    if language in UP_TO_16_KIB:
        done = caller.call(port, HOST, Tls(authority.ca), queue)
        before, _, _ = STEPS.partition("large")
        assert (done.returncode, done.stdout) == (1, before)
        return
    command = caller.command(HOST, port, "framed-binary", Tls(authority.ca), token, queue)
    lines = lines_of(command, caller.folder, lambda: None, lambda: None)
    assert lines == expected("token:caller", "kept")


@pytest.mark.parametrize("language", [each for each in OVER_TLS if each not in WITHOUT_CERTIFICATES])
def test_a_caller_shows_a_certificate(
    built_callers: Callable[[str], Caller], authority: Authority, mutual: int, queue: str, language: str
) -> None:
    caller = built_callers(language)
    named = authority.caller("caller", "web.example")
    done = caller.call(mutual, HOST, named, queue)
    assert "identity cert:web.example" in done.stdout, done.stderr
    without = caller.call(mutual, HOST, Tls(authority.ca), queue)
    assert without.stdout.split() == ["REFUSED", Forbidden.reason], without.stderr


@pytest.mark.parametrize("language", OVER_TLS)
def test_a_caller_looks_at_the_certificate_of_the_server(
    built_callers: Callable[[str], Caller],
    authority: Authority,
    secured: tuple[int, str],
    queue: str,
    language: str,
    tmp_path: Path,
) -> None:
    caller, (port, _) = built_callers(language), secured
    strange = caller.call(port, HOST, Tls(Authority(tmp_path, "other").ca), queue)
    assert (strange.returncode, strange.stdout) == (1, ""), "an authority that the caller does not trust"
    named = caller.call(port, "127.0.0.1", Tls(authority.ca), queue)
    if language in WITHOUT_NAMES:
        assert "create" in named.stdout, "it looks at names now: docs/language-traps.md says otherwise"
    else:
        assert (named.returncode, named.stdout) == (1, ""), "a name that is not in the certificate"
