"""TLS on the Thrift port: a certificate from files, which are read again when they change."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from pinlater.data_folder.private_files import SecretFileOpen, check_secret_file
from pinlater.model.callers import matches
from pinlater.model.connection_ref import names_in
from pinlater.server.watched_file import WatchedFile

_log = structlog.get_logger("pinlater.server")
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which `ssl` has no name for."""

_CLIENT_HELLO = b"\x16"
"""With this byte every TLS connection begins, and no Thrift message does: RFC 8446, section 5.1."""


class TlsInvalid(ValueError):
    """The files cannot be used; the message is for the operator."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the server's certificate with what it is signed by, its private key, and, where clients need a
    certificate too, those that may sign them; `client_ca` None: those that this machine trusts.
    """

    cert: str
    key: str
    client_ca: str | None = ""

    def context(self) -> ssl.SSLContext:
        """TLS 1.2 or newer. TlsInvalid."""
        _check_private(self.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        try:
            context.load_cert_chain(self.cert, self.key, _no_pass_phrase)
        except (OSError, ssl.SSLError) as error:
            raise TlsInvalid(f"{self.cert} and {self.key} are no certificate with its key: {error}") from None
        if self.client_ca != "":
            context.verify_mode = ssl.CERT_OPTIONAL  # who shows none is told so, in an answer
        if self.client_ca is None:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        elif self.client_ca:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise TlsInvalid(f"{self.client_ca} holds no certificates: {error}") from None
        return context


class ServerTls:
    """What new connections get. `takes_plain`: those that begin without TLS are served as well."""

    needs = (
        "callers with a certificate only: show one that its authority has signed, with the caller's name as a subject "
        "alternative name"
    )
    """Whose calls are taken where callers are asked for certificates."""

    rules_know_others = True
    """Where there are rules, they say what callers may do who are not as `needs` says."""

    def __init__(self, files: TlsFiles, *, takes_plain: bool) -> None:
        """TlsInvalid."""
        self.takes_plain = takes_plain
        self.asks_for_certificates = files.client_ca != ""
        self._files = files
        self._watched = [WatchedFile(Path(path)) for path in (files.cert, files.key, files.client_ca) if path]
        self._is_new = False
        self.context = files.context()
        self.ends_ms = certificate_ends_ms(files.cert, self.context)
        """When the certificate ends; None: that cannot be told."""

    def accepts(self, names: Sequence[str]) -> bool:
        """Whether a caller with these names in its certificate meets `needs`."""
        return bool(names)

    async def look(self) -> None:
        """To be called each second: with new files, new connections get them. Files that do not fit, as while they are
        being replaced, are left until they do.
        """
        changed = [each for each in self._watched if each.has_changed()]
        self._is_new = self._is_new or bool(changed)
        if not self._is_new:
            return
        try:
            self.context = self._files.context()
        except TlsInvalid as error:
            if changed:
                _log.warning("tls_not_reloaded", error=str(error))
            return
        self._is_new = False
        self._reloaded()

    def _reloaded(self) -> None:
        self.ends_ms = certificate_ends_ms(self._files.cert, self.context)
        _log.info("tls_reloaded", cert=self._files.cert)


class PeerTls(ServerTls):
    """On a port for the servers of one cluster: their certificates share a name, or match a pattern that is given."""

    needs = "the servers of its cluster only: show a certificate with a name that this server's has too (--tls-peers)"
    rules_know_others = False

    def __init__(self, files: TlsFiles, patterns: Sequence[str], *, takes_plain: bool) -> None:
        """TlsInvalid."""
        super().__init__(files, takes_plain=takes_plain)
        self._patterns = patterns
        self.own_names = own_names(files.cert, self.context)

    def accepts(self, names: Sequence[str]) -> bool:
        """Names of hosts in any case: RFC 4343."""
        own = {name.lower() for name in self.own_names}
        return any(
            name.lower() in own or any(matches(pattern.lower(), name.lower()) for pattern in self._patterns)
            for name in names
        )

    def _reloaded(self) -> None:
        self.own_names = own_names(self._files.cert, self.context)


async def speaks_tls(connection: socket.socket) -> bool:
    """Whether the first byte that the caller sends begins a TLS connection; it stays in the socket. OSError."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK) == _CLIENT_HELLO


def own_names(cert: str, context: ssl.SSLContext) -> tuple[str, ...]:
    """The names in the certificate of a server's context, which is read from this file. () where no caller could take
    it, as when it has expired.
    """
    return names_in(_own_certificate(cert, context, ssl.VERIFY_X509_PARTIAL_CHAIN))


def certificate_ends_ms(cert: str, context: ssl.SSLContext) -> int | None:
    """When the certificate of a server's context ends, or has ended; None: no caller could take it, at any time."""
    shown = _own_certificate(cert, context, ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    ends_at = (shown or {}).get("notAfter")
    return None if ends_at is None else ssl.cert_time_to_seconds(str(ends_at)) * 1_000


def _own_certificate(cert: str, context: ssl.SSLContext, flags: int) -> Any:
    """As `getpeercert` has it: the server shows it to a caller that trusts nothing else. None: it is not taken."""
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    caller.check_hostname = False
    caller.verify_flags |= flags
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        caller.load_verify_locations(cert)
        calling = caller.wrap_bio(back, there)
        serving = context.wrap_bio(there, back, server_side=True)
        for each in (calling, serving, calling):
            with contextlib.suppress(ssl.SSLWantReadError):
                each.do_handshake()
        return calling.getpeercert()
    except (OSError, ValueError):
        return None


def _check_private(key: str) -> None:
    """TlsInvalid: others may read the key."""
    try:
        check_secret_file(Path(key), os.stat(key))
    except OSError as error:
        raise TlsInvalid(f"{key}: {error.strerror}") from None
    except SecretFileOpen as error:
        raise TlsInvalid(str(error)) from None


def _no_pass_phrase() -> str:
    """Nobody is there to be asked for one."""
    raise OSError("the key has a pass phrase; only one without can be used")
