"""Certificates for tests, made with the `openssl` program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def make_authority(directory: Path, name: str) -> Path:
    """A key and a self-signed certificate; returns the certificate's path."""
    directory.mkdir(parents=True, exist_ok=True)
    certificate = directory / f"{name}.pem"
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", str(directory / f"{name}.key"), "-out", str(certificate)),
        *("-days", "2", "-subj", f"/CN={name}"),
    )
    return certificate


def make_certificate(directory: Path, name: str, authority: Path) -> tuple[str, str, str]:
    """Signed by the authority; returns the paths of certificate, key and authority."""
    request, key = directory / f"{name}.csr", directory / f"{name}.key"
    certificate = directory / f"{name}.pem"
    _openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", str(key), "-out", str(request), "-subj", f"/CN={name}"),
    )
    _openssl(
        *("x509", "-req", "-in", str(request), "-days", "2", "-out", str(certificate)),
        *("-CA", str(authority), "-CAkey", str(authority.with_suffix(".key")), "-CAcreateserial"),
    )
    return str(certificate), str(key), str(authority)


def _openssl(*arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("TLS IS NOT TESTED: there is no openssl program to make certificates with")
    done = subprocess.run([program, *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
