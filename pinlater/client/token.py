"""The token of a client: where it comes from, and the context that shows it to the servers."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pinlater.client.addresses import cluster_token, target_cluster
from pinlater.data_folder.private_files import SecretFileOpen, read_secret_file
from pinlater.model import RequestContext
from pinlater.redaction import SECRETS
from pinlater.written import stripped, variable

TOKEN_VARIABLE = "PINLATER_TOKEN"
FILE_VARIABLE = "PINLATER_TOKEN_FILE"
_TOKEN = re.compile(r"plt_[A-Za-z0-9_-]{43}")
_ALLOWED = "allowed: what `pinlater token create` makes, plt_ and 43 characters"


@dataclass(frozen=True, slots=True)
class Token:
    """A token; or the file that has it in its first line, with what was there before. No repr shows it. `origin`: where
    it was found.
    """

    text: str = field(default="", repr=False)
    file: str = ""
    origin: str = field(default="", compare=False)

    @classmethod
    def of(cls, token: str | Path | Token | None) -> Token | None:
        """A text is the token, a path the file that has it; "": there is to be none. ValueError: no token."""
        if token is None or isinstance(token, Token):
            return token
        if isinstance(token, Path):
            return cls(file=str(token), origin=str(token))
        return cls(_checked(token, "token=") if token else "", origin="the program")

    def read(self) -> str:
        """What the file has; else the text, if there is one. ValueError: no token is there, or others may read it."""
        if not self.file:
            return self.text
        try:
            return self._read_file()
        except ValueError:
            if self.text:
                return self.text
            raise

    def _read_file(self) -> str:
        path = Path(self.file)
        try:
            line = read_secret_line(path)
        except UnicodeError:
            raise ValueError(f"token file {path} holds no token in UTF-8; {_ALLOWED}") from None
        except OSError as error:
            raise ValueError(f"token file {path}: {error.strerror}") from None
        return _checked(line, f"token file {path}")


def read_secret_line(path: Path) -> str:
    """The first line of a file with a secret. OSError; ValueError: others may read it, or it is no text."""
    try:
        return stripped(read_secret_file(path).split("\n", 1)[0])
    except SecretFileOpen as error:
        raise ValueError(str(error)) from None


def target_token(
    token: str | Path | Token | None,
    servers: Sequence[str],
    cluster: str | None,
    clusters_file: str | Path | None = None,
) -> Token | None:
    """What is given ("": none), else what clusters.toml says of the cluster that is meant, else what the environment
    says; None: no token is shown. ValueError.
    """
    given = Token.of(token)
    if given is not None:
        return given if given.text or given.file else None
    named = target_cluster(servers, cluster)
    found = cluster_token(named, clusters_file) if named else None
    if found is not None:
        text, file = found
        where = f"cluster {named!r} in clusters.toml"
        return Token(_checked(text, f"token of {where}") if text else "", file, file or where)
    return _from_environment()


def _from_environment() -> Token | None:
    text, file = variable(TOKEN_VARIABLE), variable(FILE_VARIABLE)
    if text and file:
        raise ValueError(f"{TOKEN_VARIABLE} and {FILE_VARIABLE} are both set; allowed: one of them")
    if text:
        return Token(_checked(text, TOKEN_VARIABLE), origin=TOKEN_VARIABLE)
    file = os.path.expanduser(file)
    return Token(file=file, origin=f"{file}, which {FILE_VARIABLE} names") if file else None


def _checked(text: str, what: str) -> str:
    """What is no token may be another secret: it is not quoted. ValueError."""
    if _TOKEN.fullmatch(text) is None:
        raise ValueError(f"{what} holds no token; {_ALLOWED}")
    return text


class CallerContext:
    """The context of a client's calls, with its token.

    A file with a token is read again when a server refuses what it held: so a token is exchanged without a failed call,
    by putting a new one into the file before the old one is revoked.
    """

    def __init__(self, source: str, token: Token | None) -> None:
        """ValueError: the file holds no token."""
        self._token = token
        self._former: str | None = None
        self.context = RequestContext(source)
        if token is not None:
            self.context.token = self._read(token)

    def of(self, context: RequestContext | None) -> RequestContext:
        """A given context as it is sent: with the client's token, unless it has one of its own, or "" for none. None:
        that of the client.
        """
        if context is None:
            return self.context
        if context.token is None:
            return context if self.context.token is None else replace(context, token=self.context.token)
        return context if context.token else replace(context, token=None)

    def renewed(self, refused: RequestContext) -> RequestContext | None:
        """The context for the same call once more; None: there is no other token to show."""
        token, shown = self._token, refused.token
        if token is None or not token.file or shown is None:
            return None
        if shown == self.context.token:
            try:
                text = self._read(token)
            except ValueError:
                return None
            if text == shown:
                return None
            self._former, self.context = shown, replace(self.context, token=text)
        elif shown != self._former:
            return None
        return replace(refused, token=self.context.token)

    def _read(self, token: Token) -> str:
        text = token.read()
        SECRETS.keep([text])
        return text
