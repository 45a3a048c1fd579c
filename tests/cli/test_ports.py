"""A port that was chosen is its cluster's alone."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from coord.cli import ports
from coord.cli.ports import KeptPorts


def listening(port: int) -> socket.socket:
    """As servers do."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((ports.HOST, port))
    made.listen(1)
    return made


def test_a_kept_port_is_nobody_elses_and_a_server_can_listen_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(KeptPorts()) as ours, closing(KeptPorts()) as others:
        port, beside = ours.choose(2)
        # Only these two are left to choose from: whoever comes next must not be given the first.
        ours.close()
        monkeypatch.setattr(ports, "FREE_PORTS", range(port, port + 1))
        assert ours.choose(1) == [port]
        monkeypatch.setattr(ports, "FREE_PORTS", [port, beside])
        assert others.choose(1) == [beside]
        listening(port).close()
        with closing(listening(port)):
            assert ours.keep(port)
            assert not others.keep(port)


def test_a_port_at_which_connections_linger_can_be_kept_again() -> None:
    with closing(KeptPorts()) as ours:
        (port,) = ours.choose(1)
        with closing(listening(port)) as server:
            client = socket.create_connection((ports.HOST, port))
            accepted, _ = server.accept()
            # Whoever closes first lingers.
            accepted.close()
            client.close()
        ours.close()
        assert ours.keep(port)
        listening(port).close()
