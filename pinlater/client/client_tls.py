"""TLS to the servers: the authorities that a client trusts, and the certificate that it shows."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pinlater.client import addresses
from pinlater.client.addresses import cluster_tls, target_cluster
from pinlater.data_folder.private_files import SecretFileOpen, check_secret_file
from pinlater.written import variable

_VARIABLE = "PINLATER_TLS_"
_FLAGS = {"ca": "ca", "cert": "client_cert", "key": "client_key", "server_name": "server_name"}
_NO_KEY = f"a key in a file of its own is given by key, --client-key or {_VARIABLE}KEY"
_CERTIFICATE = "-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?"
_OF_SERVERS = ("required", "optional")
"""What PINLATER_TLS may say to `pinlater serve` in the same environment; to callers it says nothing."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Calls go over TLS 1.2 or newer, to servers whose certificate bears the name that they are called by.

    `ca`: a PEM file with those who may sign it; without one, those that this machine trusts. `cert`, `key`: PEM files
    with the certificate and the private key of this client, for servers that ask for one. `server_name`: the name in
    the servers' certificates, where it is not the one in their address. The files are read anew for new connections
    when they change.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        """ValueError: a key without a certificate."""
        if self.key and not self.cert:
            raise ValueError(
                "a private key for TLS is given without its certificate; give that too: cert, --client-cert or "
                f"{_VARIABLE}CERT"
            )

    def within(self, folder: Path) -> Tls:
        """With paths that begin at this folder."""
        paths = {name: str(folder / path) for name in ("ca", "cert", "key") if (path := getattr(self, name))}
        return replace(self, **paths)

    @staticmethod
    def flags_in(options: dict[str, Any]) -> dict[str, str | None]:
        """Takes --ca, --client-cert, --client-key and --server-name out of a command's options: by their fields."""
        return {name: options.pop(option, None) for name, option in _FLAGS.items()}

    def over(self, **given: str | None) -> Tls:
        """With what is given in place of its own. A certificate comes with its key: who gives one means both."""
        given = {name: value for name, value in given.items() if value}
        if "cert" in given:
            given = {"key": None, **given}
        return replace(self, **given)

    @classmethod
    def from_mapping(cls, told: Mapping[str, object], where: str) -> Tls:
        """As configuration files say it, by the names of the fields. ValueError names `where`."""
        known = [each.name for each in fields(cls)]
        for name, value in told.items():
            if name not in known or not isinstance(value, str) or not value:
                raise ValueError(f"{where}.{name} is {value!r}; allowed: texts under {', '.join(known)}")
        return cls(**told)  # type: ignore[arg-type]

    @classmethod
    def from_environment(cls) -> Tls | None:
        """By PINLATER_TLS_CA, _CERT, _KEY and _SERVER_NAME; PINLATER_TLS=on alone trusts what this machine does. None:
        nothing of it is set.
        """
        values = {each.name: variable(_VARIABLE + each.name.upper()) for each in fields(cls)}
        is_on = variable(_VARIABLE[:-1]).lower()
        if is_on not in ("", "on", "off", *_OF_SERVERS):
            raise ValueError(f"{_VARIABLE[:-1]} is {is_on!r}; allowed: on, off or nothing")
        if is_on == "off" or not (is_on == "on" or any(values.values())):
            return None
        return cls(**{name: value or None for name, value in values.items()})


@dataclass(frozen=True, slots=True)
class PinnedTls(Tls):
    """To a server that has the very certificate in `ca`, whatever names it bears and whoever signed it; while the file
    is exchanged, also the one before.
    """


def target_tls(
    tls: Tls | bool | None, servers: Sequence[str], cluster: str | None, clusters_file: str | Path | None
) -> Tls | None:
    """What is given, else what clusters.toml says of the cluster that is meant, else what the environment says; None:
    calls go in plain. ValueError.
    """
    if isinstance(tls, bool):
        return Tls() if tls else None
    if tls is not None:
        return tls
    named = target_cluster(servers, cluster)
    table = cluster_tls(named, clusters_file) if named else None
    if table is None:
        return Tls.from_environment()
    file = addresses.clusters_file(clusters_file)
    return Tls.from_mapping(table, f"cluster {named!r} in {file}: tls").within(file.parent)


class ClientTls:
    """The context for new connections, made again when the files change."""

    def __init__(self, tls: Tls) -> None:
        self.server_name = tls.server_name
        self.shows_certificate = tls.cert is not None
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self._stamp: tuple[tuple[int, int, int], ...] = ()
        self._pinned = ""

    def context(self) -> ssl.SSLContext:
        """OSError: a file cannot be read, or does not fit; the message names it."""
        tls = self._tls
        stamp = tuple(_stamp(path) for path in (tls.ca, tls.cert, tls.key) if path)
        if self._context is None or stamp != self._stamp:
            try:
                context = ssl.create_default_context(cafile=tls.ca)
            except ssl.SSLError as error:
                raise OSError(f"{tls.ca} holds no certificates in PEM: {error}") from None
            if isinstance(tls, PinnedTls):
                self._pin(context, tls)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if tls.cert:
                key = tls.key or tls.cert
                _check_private(key)
                try:
                    context.load_cert_chain(tls.cert, key, _no_pass_phrase)
                except ssl.SSLError as error:
                    problem = f"{tls.cert} and {key} are no certificate with its key, in PEM: {error}"
                    if tls.key is None:
                        problem = f"{tls.cert} does not hold a certificate and its key, in PEM; {_NO_KEY}: {error}"
                    raise OSError(problem) from None
            self._context, self._stamp = context, stamp
        return self._context

    def _pin(self, context: ssl.SSLContext, tls: PinnedTls) -> None:
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self._pinned:
            context.load_verify_locations(cadata=self._pinned)
        pem = Path(str(tls.ca)).read_text("ascii", "replace")
        self._pinned = "".join(re.findall(_CERTIFICATE, pem, re.DOTALL))


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise OSError(f"{path} cannot be read: {error.strerror}") from None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _no_pass_phrase() -> str:
    """OpenSSL would ask on the terminal."""
    raise OSError("the key has a pass phrase: give one without, for its owner alone")


def _check_private(key: str) -> None:
    """OSError: others may read it."""
    try:
        check_secret_file(Path(key), os.stat(key))
    except SecretFileOpen as error:
        raise PermissionError(str(error)) from None
