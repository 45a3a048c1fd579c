"""The addresses a client was given or told by a server, and which to ask next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

DEFAULT_PORT = 7101


class ServerRing:
    """Base URLs as given, then as learned; `current` moves on when a server disappoints."""

    def __init__(self, servers: Iterable[str]) -> None:
        self.urls = tuple(dict.fromkeys(base_url(server) for server in servers))
        if not self.urls:
            raise ValueError(
                "no server address given; pass at least one, like http://127.0.0.1:7101"
            )
        self._given = self.urls
        self._scheme = self.urls[0].partition("://")[0]
        self._at = 0

    @property
    def current(self) -> str:
        return self.urls[self._at]

    def learn(self, api_addresses: Iterable[str]) -> None:
        """Ask the members that a server named as well, after the addresses given.

        Of those named earlier none stays: members come and go.
        """
        current = self.current
        named = [self.url_of(address) for address in api_addresses]
        kept = (*self._given, *(url for url in named if url))
        self.urls = tuple(dict.fromkeys(kept))
        self._at = self.urls.index(current) if current in self.urls else 0

    def advance(self) -> None:
        """Ask the next one from now on."""
        self._at = (self._at + 1) % len(self.urls)

    def skip(self, steps: int) -> None:
        """Start elsewhere, so that many clients do not all begin with the first."""
        self._at = (self._at + steps) % len(self.urls)

    def round(self) -> Iterator[str]:
        """Each server once, from the current one on, which is the one yielded last."""
        for _ in tuple(self.urls):
            yield self.current
            self.advance()

    def url_of(self, api_address: str) -> str:
        """The URL of a server that another one named as `host:port`; empty for an empty address."""
        return base_url(api_address, self._scheme) if api_address else ""


class RelayedRing(ServerRing):
    """Relays first, each in turn, then the servers themselves, and so on."""

    def __init__(self, servers: Iterable[str], relays: Iterable[str]) -> None:
        self._relays = tuple(dict.fromkeys(base_url(relay) for relay in relays))
        straight = [base_url(server) for server in servers]
        if not straight:
            raise ValueError(
                "no server address given; a relay may be away, so pass at least one server as well"
            )
        super().__init__((*self._relays, *straight))

    @property
    def relays(self) -> tuple[str, ...]:
        """In the order in which they are tried."""
        return self._relays

    @property
    def straight(self) -> bool:
        """Whether the current one is a server although there are relays."""
        return bool(self._relays) and self.current not in self._relays

    def skip(self, steps: int) -> None:
        """Start elsewhere within the relays, and within the servers."""
        servers = self.urls[len(self._relays) :]
        if not self._relays:
            super().skip(steps)
            return
        self._relays = _turned(self._relays, steps)
        self.urls = self._relays + _turned(servers, steps)

    def choose(self, url: str) -> None:
        """Use this one from now on."""
        self._at = self.urls.index(url)


def _turned(urls: tuple[str, ...], steps: int) -> tuple[str, ...]:
    at = steps % len(urls) if urls else 0
    return urls[at:] + urls[:at]


def base_url(server: str, scheme: str = "http") -> str:
    """`127.0.0.1:7101` and `http://127.0.0.1:7101/` are both `http://127.0.0.1:7101`."""
    server = server.strip().rstrip("/")
    if not server:
        raise ValueError("a server address is empty; write host:port or http://host:port")
    if "://" not in server:
        server = f"{scheme}://{server}"
    given_scheme, _, rest = server.partition("://")
    if given_scheme not in {"http", "https"}:
        raise ValueError(f"server address {server!r} starts with {given_scheme}; use http or https")
    name, colon, port = rest.rpartition(":")
    if not colon or port.endswith("]"):
        return f"{given_scheme}://{rest}:{DEFAULT_PORT}"
    if not name or not port.isdigit():
        raise ValueError(f"server address {server!r} is not host:port")
    return server
