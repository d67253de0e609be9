"""Sessions of browsers: a token or the admin password is shown once, and a cookie stands for it until the session ends.

They are kept in the memory of this process, by the hash of what the cookie says, and where there is a data folder in
that, too: the next process knows them, and has the servers check what each stands for before it counts. Each has a text
that pages show with every change, which pages of other sites cannot know. A browser that has shown nothing has such a
session too, but its cookie says all of it, sealed by a key of this process: visitors whom nobody knows take no memory,
however many they are.
"""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from html import escape
from pathlib import Path
from secrets import token_bytes
from typing import NamedTuple

import msgspec
import structlog

from pinlater.http.fair_shares import FairEntries
from pinlater.http.session_folder import SessionFolder, StoredSession, halved, joined
from pinlater.model import ANONYMOUS

_log = structlog.get_logger("pinlater.http")
MAX_AGE_S = 12 * 3600.0
IDLE_S = 3600.0
MAX_SESSIONS = 1_000
"""Then the one of the identity with most sessions ends that was used least lately."""

CLOCK_SLACK_S = 60.0
"""By which the machine's clock may be set back under a session; by more, it ends."""

MAX_STORED_CHARS = 2_000
"""Of a credential: with a longer one browsers would not keep the cookie, and the session ends with the process."""

_ID_BYTES, _BLOCK_BYTES = 32, 256
MAX_NOTICES = 5
MAX_NOTICE_CHARS = 500
MAX_COOKIE_CHARS = 4_000
MAX_FORM_CHARS = 64 * 1024
MAX_SEALED_FORM_CHARS = 1_500
"""Of a browser that has shown nothing."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What a browser has shown: a token, or the admin password, or nothing. `identity` is who the servers say that is,
    `source` what it calls itself in the audit ("" for its address).
    """

    token: str | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)
    identity: str = ANONYMOUS
    source: str = ""

    def __bool__(self) -> bool:
        return self.token is not None or bool(self.password)


class Notice(NamedTuple):
    """What happened, for the next page to say."""

    text: str
    is_bad: bool = False


class RefusedForm(NamedTuple):
    """A form that was sent to `path` and not taken, for the page that has it to show again."""

    path: str
    fields: tuple[tuple[str, str], ...]

    @property
    def chars(self) -> int:
        return len(self.path) + sum(len(name) + len(value) for name, value in self.fields)


@dataclass(slots=True, eq=False)
class BrowserSession:
    """`notices` are those that no page has shown yet, and `refused` is a form that none has. `number` is of those that
    have shown nothing: it makes each one's text. `file` is the name of its file, "" for none; `half` is what that has
    of the credential, until the cookie comes with the rest. One that another process began is not checked.
    """

    credential: Credential
    csrf: str = field(repr=False)
    ends_s: float
    used_s: float
    notices: list[Notice] = field(default_factory=list)
    refused: RefusedForm | None = field(default=None, repr=False)
    number: bytes = field(default=b"", repr=False)
    file: str = ""
    half: bytes = field(default=b"", repr=False)
    is_checked: bool = True

    def tell(self, notice: Notice) -> None:
        """The next page shows it."""
        self.notices = [*self.notices, notice][-MAX_NOTICES:]

    def keep(self, form: RefusedForm) -> bool:
        """The next page shows it again, where it has it. False: it is too large to be kept."""
        is_small = form.chars <= (MAX_FORM_CHARS if self.credential else MAX_SEALED_FORM_CHARS)
        self.refused = form if is_small else None
        return is_small


class SealedSession(msgspec.Struct, array_like=True):
    """What the cookie of a browser says that has shown nothing."""

    number: bytes
    ends_s: float
    text: str = ""
    is_bad: bool = False
    """The last notice, "" for none."""

    refused: RefusedForm | None = None


class Sessions:
    """All sessions of this process; `data` is the folder in which they outlive it."""

    def __init__(self, clock: Callable[[], float] = time.time, data: Path | None = None) -> None:
        self._clock = clock
        self._key = token_bytes(32)
        self.kept: FairEntries[BrowserSession] = FairEntries("http_sessions", MAX_SESSIONS, on_push=self._drop_file)
        """Of those that have shown something."""
        self._folder: SessionFolder | None = None
        if data is None:
            return
        now_s = self._clock()
        try:
            self._folder = SessionFolder(data)
            for name, stored, used_s in self._folder.stored(now_s):
                self.kept.put(stored.identity, name, _unproved(name, stored, used_s))
        except OSError as error:
            _log.warning("sessions_end_with_the_process", folder=str(data), error=str(error))
            self._folder = None
        self._drop_ended(now_s)

    def begin(self, credential: Credential) -> tuple[str, BrowserSession]:
        """A new one of who has shown something, and what its cookie says."""
        now_s = self._clock()
        self._drop_ended(now_s)
        number, pad, half = token_bytes(_ID_BYTES), b"", b""
        packed = msgspec.json.encode(credential)
        if self._folder is not None and len(packed) <= MAX_STORED_CHARS:
            pad, half = halved(packed.ljust(-(-len(packed) // _BLOCK_BYTES) * _BLOCK_BYTES))  # of no telling length
        cookie = _text(number + pad)
        name = self._name(cookie)
        session = BrowserSession(credential, _csrf(cookie), now_s + MAX_AGE_S, now_s)
        if half and self._folder is not None:
            stored = StoredSession(credential.identity, session.ends_s, half)
            session.file = name if self._folder.write(name, stored, now_s) else ""
        self.kept.put(credential.identity, name, session)
        return cookie, session

    def visit(self) -> BrowserSession:
        """A new one of who has shown nothing; `sealed` is its cookie."""
        return self._visitor(SealedSession(token_bytes(16), self._clock() + MAX_AGE_S))

    def sealed(self, session: BrowserSession) -> str:
        """All of a session whose browser has shown nothing."""
        last = session.notices[-1] if session.notices else Notice("")
        sealed = SealedSession(
            session.number, session.ends_s, last.text[:MAX_NOTICE_CHARS], last.is_bad, session.refused
        )
        packed = msgspec.msgpack.encode(sealed)
        return f"{_text(packed)}.{_text(self._mac(b'cookie', packed))}"

    def find(self, cookie: str) -> BrowserSession | None:
        """None: it is not known here, or has ended."""
        if "." in cookie:
            return self._unsealed(cookie)
        name, now_s = self._name(cookie), self._clock()
        session = self.kept.get(name) or self._begun_elsewhere(name)
        if session is None:
            return None
        if _is_over(session, now_s) or not self._has_file(session, now_s) or not _is_opened(session, cookie):
            self._end(name)
            return None
        session.used_s = now_s
        return session

    def end(self, cookie: str) -> None:
        """Of who has shown something: the cookie of others is a secret of their browser alone, and allows nothing."""
        self._end(self._name(cookie))

    def _end(self, name: str) -> None:
        self.kept.pop(name)
        if self._folder is not None:
            self._folder.remove(name)

    def _drop_ended(self, now_s: float) -> None:
        """What is of no more use is not to lie in the folder."""
        for session in self.kept:
            if session.file and _is_over(session, now_s):
                self._end(session.file)

    def _drop_file(self, session: BrowserSession) -> None:
        if session.file and self._folder is not None:
            self._folder.remove(session.file)

    def _has_file(self, session: BrowserSession, now_s: float) -> bool:
        """Where it has one: whoever ends it, in another process or by hand, removes that."""
        return not session.file or self._folder is None or self._folder.use(session.file, now_s)

    def _begun_elsewhere(self, name: str) -> BrowserSession | None:
        """In the process before this one, while that went on beside it."""
        if self._folder is None or (stored := self._folder.read(name)) is None:
            return None
        session = _unproved(name, stored, self._folder.used_s(name))
        self.kept.put(stored.identity, name, session)
        return session

    def _name(self, cookie: str) -> str:
        """By which a session is known, that says nothing of the cookie."""
        if self._folder is not None:
            return self._folder.name_of(cookie)
        return sha256(cookie.encode("utf-8", "replace")).hexdigest()

    def _visitor(self, sealed: SealedSession) -> BrowserSession:
        csrf = _text(self._mac(b"csrf", sealed.number))
        notices = [Notice(sealed.text, sealed.is_bad)] if sealed.text else []
        return BrowserSession(Credential(), csrf, sealed.ends_s, self._clock(), notices, sealed.refused, sealed.number)

    def _unsealed(self, cookie: str) -> BrowserSession | None:
        text, _, mac = cookie.partition(".")
        if len(cookie) > MAX_COOKIE_CHARS or not cookie.isascii():
            return None
        try:
            packed, shown = _bytes_of(text), _bytes_of(mac)
        except ValueError:
            return None
        if not compare_digest(self._mac(b"cookie", packed), shown):
            return None
        sealed = msgspec.msgpack.decode(packed, type=SealedSession)
        return self._visitor(sealed) if self._clock() < sealed.ends_s else None

    def _mac(self, purpose: bytes, data: bytes) -> bytes:
        return hmac.digest(self._key, purpose + b" " + data, "sha256")


def is_csrf_token(session: BrowserSession | None, shown: str) -> bool:
    return session is not None and compare_digest(session.csrf.encode(), shown.encode("utf-8", "replace"))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes_of(text: str) -> bytes:
    """ValueError."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _csrf(cookie: str) -> str:
    return _text(hmac.digest(cookie.encode("utf-8", "replace"), b"csrf", "sha256"))


def _unproved(name: str, stored: StoredSession, used_s: float) -> BrowserSession:
    """As its file has it."""
    shown = Credential(identity=stored.identity)
    return BrowserSession(shown, "", stored.ends_s, used_s, file=name, half=stored.half, is_checked=False)


def _is_opened(session: BrowserSession, cookie: str) -> bool:
    """Whether it has its credential, which its cookie brings. False: its file is torn."""
    if not session.half:
        return True
    try:
        pad = _bytes_of(cookie)[_ID_BYTES:]
        session.credential = msgspec.json.decode(joined(session.half, pad), type=Credential)
    except (ValueError, msgspec.DecodeError):
        return False
    session.csrf, session.half = _csrf(cookie), b""
    return True


def _is_over(session: BrowserSession, now_s: float) -> bool:
    """By age or by rest; a clock that is set back makes none last longer."""
    left_s, rest_s = session.ends_s - now_s, now_s - session.used_s
    return not (0 < left_s <= MAX_AGE_S + CLOCK_SLACK_S and -CLOCK_SLACK_S <= rest_s < IDLE_S)


TOKEN_PREFIX = "plt_"
"""Of every token that was made for a caller; what else is typed into the login is taken for the admin password."""

_STYLE = """
:root{color-scheme:light dark;--ink:light-dark(#171a21,#e8eaf0);--quiet:light-dark(#565f6e,#9ba4b4);
--line:light-dark(#d9dde4,#323846);--paper:light-dark(#fff,#181c24);--ground:light-dark(#f5f6f8,#0f1217);
--accent:light-dark(#3a4fc1,#93a5ff);--bad:light-dark(#b3261e,#ff9a92)}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;margin:0;min-height:100vh;display:grid;place-items:center;padding:1rem;
color:var(--ink);background:var(--ground)}
main{width:100%;max-width:25rem;background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:1.75rem}
h1{font-size:1.2rem;margin:0 0 1rem}label{font-weight:600}
input,button{font:inherit;padding:.55em .7em;border-radius:6px;border:1px solid var(--line)}
input{width:100%;margin:.35em 0 1em;color:inherit;background:var(--ground)}
button{color:light-dark(#fff,#10131a);background:var(--accent);border-color:var(--accent);font-weight:600;cursor:pointer}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
a{color:var(--accent)}p{margin:1em 0 0}li{margin:.4em 0}.quiet{color:var(--quiet);font-size:.9em}.bad{color:var(--bad)}
code{font-family:ui-monospace,monospace;background:var(--ground);border-radius:4px;
padding:.1em .35em;white-space:nowrap}
"""
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>PinLater: {title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head><body><main>
<h1>PinLater</h1>
"""


def login_page(csrf: str, after: str, refusal: str = "") -> str:
    """Asks for a token or a password. `after`: the path to go to then; `refusal`: why the last one did not do."""
    mistake = f'<p class="bad" role="alert">{escape(refusal)}</p>' if refusal else ""
    return (
        _HEAD.format(title="log in", style=_STYLE)
        + mistake
        + '<form method="post" action="/login" autocomplete="off">'
        + f'<input type="hidden" name="csrf" value="{escape(csrf)}">'
        + f'<input type="hidden" name="next" value="{escape(after)}">'
        + '<label for="token">Token, or admin password</label>'
        + '<input id="token" name="token" type="password" required autofocus spellcheck="false">'
        + "<button>Log in</button></form>"
        + '<p class="quiet">On the machine of the server <code>pinlater dashboard</code> opens the dashboard without '
        + "a login. Where rules say who may do what, only a token counts: <code>pinlater token create NAME --role "
        + "operator</code>.</p>"
        + '<p class="quiet">A login lasts 12 hours, or an hour without a request; with <code>pinlater api</code> no '
        + "longer than that process.</p></main></body></html>\n"
    )


def start_page(identity: str, csrf: str, links: list[tuple[str, str]]) -> str:
    """Who is logged in, and where to go."""
    rows = "".join(f'<li><a href="{escape(path)}">{escape(text)}</a></li>' for path, text in links)
    return (
        _HEAD.format(title="start", style=_STYLE)
        + f"<p>You are {escape(identity)}.</p><ul>{rows}</ul>"
        + f'<form method="post" action="/logout"><input type="hidden" name="csrf" value="{escape(csrf)}">'
        + "<button>Log out</button></form></main></body></html>\n"
    )


def local_path(text: str) -> str:
    """Where to go after the login: a path of this site, else its start.

    >>> [local_path(text) for text in ("/docs?a=1", "//evil.example", "https://evil.example", "/\\\\evil", "")]
    ['/docs?a=1', '/', '/', '/', '/']
    """
    is_local = text.startswith("/") and not text.startswith("//") and text.isprintable() and "\\" not in text
    return text if is_local else "/"
