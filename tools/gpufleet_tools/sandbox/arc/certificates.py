"""Keys of the sandbox: the certificate of the simulated GitHub, and private keys of GitHub Apps."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

_DAYS = 365


def app_key(file: Path) -> str:
    """Return the private key of a GitHub App in a file, as PEM. Create it if it is missing."""
    if not file.exists():
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write_key(key, file)
    return file.read_text()


def write(folder: Path, names: Collection[str]) -> tuple[Path, Path]:
    """Write a certificate for these host names. Return the file with certificate and key, and the file with its
    authority. Both are new each time: processes that trust the authority are started afterwards."""
    authority_key, key = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "simulated GitHub")])
    authority = _certificate(authority_name, authority_key, authority_name, authority_key, (), authority=True)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "github.com")])
    server = _certificate(name, key, authority_name, authority_key, names, authority=False)
    server_file, authority_file = folder / "server.pem", folder / "authority.crt"
    _write_key(key, server_file)
    with server_file.open("ab") as file:
        file.write(server.public_bytes(serialization.Encoding.PEM))
    authority_file.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    return server_file, authority_file


def _certificate(
    subject: x509.Name,
    key: rsa.RSAPrivateKey,
    issuer: x509.Name,
    signer: rsa.RSAPrivateKey,
    names: Collection[str],
    *,
    authority: bool,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), False)
    return builder.sign(signer, hashes.SHA256())


def _write_key(key: rsa.RSAPrivateKey, file: Path) -> None:
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    file.touch(mode=0o600)
    file.write_bytes(text)
