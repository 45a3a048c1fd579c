"""What the other side needs: etcd from Debian, and its load generator built from shared sources."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

TREE = Path(__file__).parents[3]
SOURCES = TREE.parent / "shared" / "peers" / "etcd"
"""The load generator and the list of what its build needs: run from there, never part of us."""
BUILD = TREE / "build" / "etcd"
PACKAGES = {"etcd": "etcd-server", "go": "golang-go"}
INSTALL_S = 900


class Missing(Exception):
    """What is absent and how it could be had."""


def found() -> bool:
    """Whether both systems could be compared here without installing anything."""
    return shutil.which("etcd") is not None and load_generator().exists()


def load_generator() -> Path:
    return BUILD / "etcdload"


def install() -> None:
    """Have etcd and the load generator. Raises Missing, which says what is not to be had."""
    if not (SOURCES / "src" / "etcdload").is_dir():
        raise Missing(f"etcd's load generator is not there: {SOURCES} has no src/etcdload")
    absent = [package for name, package in PACKAGES.items() if shutil.which(name) is None]
    if absent:
        _install(absent)
    if not load_generator().exists():
        _build()


def _install(packages: list[str]) -> None:
    wanted = " ".join(packages)
    command = f"apt-get install --no-install-recommends {wanted}"
    if shutil.which("apt-get") is None:
        raise Missing(f"{wanted} cannot be installed: this is no Debian; install etcd and Go")
    if os.geteuid() != 0:
        raise Missing(f"{wanted} must be installed, as root: {command}")
    # Updating may fail for one source of several and leave the others of use.
    subprocess.run(["apt-get", "update", "-qq"], check=False, timeout=INSTALL_S)
    _run([*command.split(), "-y", "-qq"], f"{wanted} could not be installed", BUILD)


def _build() -> None:
    """Debian's Go sources go into a private folder, as `run.sh` there does."""
    gopath = BUILD / "gopath" / "usr" / "share" / "gocode"
    if not (gopath / "src" / "go.etcd.io" / "etcd" / "clientv3").is_dir():
        packages = BUILD / "debs"
        packages.mkdir(parents=True, exist_ok=True)
        names = (SOURCES / "go-debs.txt").read_text().split()
        _run(["apt-get", "download", "-qq", *names], "no Go sources of etcd", packages)
        for package in sorted(packages.glob("*.deb")):
            _run(["dpkg-deb", "-x", str(package), str(BUILD / "gopath")], "no Go sources", BUILD)
    env = {
        "GO111MODULE": "off",
        "GOPATH": str(gopath),
        "GOCACHE": str(BUILD / "gocache"),
        "GOFLAGS": "",
    }
    command = ["nice", "go", "build", "-o", str(load_generator()), "."]
    sources = SOURCES / "src" / "etcdload"
    _run(command, "etcd's load generator could not be built", sources, env)


def _run(
    command: Iterable[str], problem: str, directory: Path, env: dict[str, str] | None = None
) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        list(command),
        cwd=directory,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    if done.returncode:
        raise Missing(f"{problem}: {' '.join(command)}: {done.stdout[-500:].strip()}")
