"""Certificates of a private authority, as files that a server and its callers are given."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pinlater.client.client_tls import Tls


class Authority:
    """Signs; its own certificate is `ca`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.ca = str(folder / f"{name}.pem")
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, *identities: str, is_expired: bool = False) -> tuple[str, str]:
        """NAME.pem, a certificate with its chain, and NAME.key, for the owner alone; each is put in place at once."""
        ends_at = datetime.now(UTC) + timedelta(days=-1 if is_expired else 1)
        starts_at = ends_at - timedelta(days=2)
        made = self._ca.issue_cert(*identities, not_before=starts_at, not_after=ends_at)
        cert, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
        for path, content in ((key, made.private_key_pem.bytes()), (cert, chain)):
            new = path.with_suffix(".new")
            new.touch(mode=0o600)
            new.write_bytes(content)
            os.replace(new, path)
        return str(cert), str(key)

    def caller(self, name: str = "caller", *identities: str) -> Tls:
        """Trusts this authority, and shows a certificate of it."""
        cert, key = self.issue(name, *(identities or ("worker@example.org",)))
        return Tls(self.ca, cert, key)

    def nameless(self) -> Tls:
        """Shows a certificate of this authority in which only the subject has a name."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(issuer, ec.EllipticCurvePrivateKey)
        now = datetime.now(UTC)
        authority = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "web.example")]))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .sign(issuer, hashes.SHA256())
        )
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        cert, secret = self._folder / "nameless.pem", self._folder / "nameless.key"
        cert.write_bytes(made.public_bytes(pem))
        secret.touch(mode=0o600)
        secret.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        return Tls(self.ca, str(cert), str(secret))
