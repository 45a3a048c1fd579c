"""Addresses as text, `host:port`, and which of them may be spoken to without certificates."""

from __future__ import annotations

import ipaddress


def split_address(address: str) -> tuple[str, int]:
    """Raises ValueError, which says what is expected."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not (port.isascii() and port.isdigit()):
        raise ValueError(f"{address!r}; it must be HOST:PORT")
    if int(port) > 65_535:
        raise ValueError(f"{address!r}; the port must be 0 to 65535")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Nobody but this machine reaches it. Names other than localhost might lead anywhere."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address_problem(name: str, address: str, secured: bool) -> str:
    """What is wrong with an address to listen at or to be reached at; empty when nothing is."""
    try:
        host, _ = split_address(address)
    except ValueError as error:
        return f"{name} is {error}"
    if secured or is_loopback(host):
        return ""
    return (
        f"{name} is {address!r}, which others can reach; without certificates only loopback "
        "addresses such as 127.0.0.1 are served"
    )
