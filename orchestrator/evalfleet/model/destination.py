"""What of the network a sandbox may reach: nothing, all, or the hosts that its plan names. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Where a host without a port may be reached.
DEFAULT_PORTS = frozenset({80, 443})
_ENTRY = re.compile(
    r"(?P<host>\[[0-9a-fA-F:.]+\]|(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)(?::(?P<port>\d{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class Destination:
    """An entry of an allow-list: `example.org`, `*.example.org` (its subdomains), with `:port` for one port only."""

    host: str
    port: int | None = None

    @classmethod
    def of(cls, text: str) -> Destination:
        """Raises ValueError for what names no host."""
        match = _ENTRY.fullmatch(text)
        port = None if match is None or match["port"] is None else int(match["port"])
        if match is None or (port is not None and not 0 < port < 1 << 16):
            raise ValueError(f"{text!r} names no host: write `example.org`, `*.example.org` or `example.org:8443`")
        return cls(match["host"].strip("[]").lower(), port)

    def admits(self, host: str, port: int) -> bool:
        """Whether this entry lets through to that host, a name in lower case or an address."""
        named = host == self.host or (self.host.startswith("*.") and host.endswith(self.host[1:]))
        return named and (port in DEFAULT_PORTS if self.port is None else port == self.port)


def check_network(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """A sandbox's `network` as it was given. Raises ValueError unless it is `none`, `open` or hosts."""
    if isinstance(value, str):
        if value not in ("none", "open"):
            raise ValueError(f"{value!r} is neither none, nor open, nor a list of hosts")
        return value
    for entry in value:
        Destination.of(entry)
    return value


def admitted(allowed: Iterable[Destination], host: str, port: int) -> bool:
    """Whether any entry lets through; a trailing dot and the case of a name mean nothing."""
    name = host.rstrip(".").lower()
    return any(entry.admits(name, port) for entry in allowed)


def is_ours(address: str, host: str) -> bool:
    """Whether an address that a name stands for is this machine or its link, which no name may lead to.

    An address that the allow-list writes out, as `host`, is meant.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if address == host:
        return False
    return found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast
