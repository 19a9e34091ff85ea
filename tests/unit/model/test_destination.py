"""Which hosts a tunnel leads to, as a table."""

from __future__ import annotations

import pytest

from evalfleet.model.destination import Destination, admitted, check_network, is_ours

ADMITTED = {
    ("example.org", "example.org", 443): True,
    ("example.org", "example.org", 80): True,
    ("example.org", "EXAMPLE.org.", 443): True,
    ("example.org", "example.org", 22): False,
    ("example.org", "www.example.org", 443): False,
    ("example.org", "badexample.org", 443): False,
    ("example.org", "example.org.evil.net", 443): False,
    ("*.example.org", "www.example.org", 443): True,
    ("*.example.org", "a.b.example.org", 443): True,
    ("*.example.org", "example.org", 443): False,
    ("*.example.org", "badexample.org", 443): False,
    ("example.org:8443", "example.org", 8443): True,
    ("example.org:8443", "example.org", 443): False,
    ("10.0.0.7:5432", "10.0.0.7", 5432): True,
    ("[2001:db8::1]:443", "2001:db8::1", 443): True,
}


@pytest.mark.parametrize(("entry", "host", "port"), ADMITTED)
def test_who_is_let_through(entry: str, host: str, port: int) -> None:
    assert admitted([Destination.of(entry)], host, port) is ADMITTED[entry, host, port]


@pytest.mark.parametrize("text", ["", "*", "*.", "http://x", "a b", "x:0", "x:65536", "x:y", "-x", "x/", "*.*.x", ".x"])
def test_what_names_no_host(text: str) -> None:
    with pytest.raises(ValueError, match="names no host"):
        Destination.of(text)


OURS = {
    ("127.0.0.1", "localhost"): True,
    ("127.8.9.1", "evil.net"): True,
    ("::1", "evil.net"): True,
    ("::ffff:127.0.0.1", "evil.net"): True,
    ("169.254.169.254", "metadata"): True,
    ("fe80::1%eth0", "evil.net"): True,
    ("0.0.0.0", "evil.net"): True,
    ("10.0.0.7", "registry.internal"): False,
    ("93.184.216.34", "example.org"): False,
    ("127.0.0.1", "127.0.0.1"): False,
}


@pytest.mark.parametrize(("address", "host"), OURS)
def test_no_name_stands_for_this_machine(address: str, host: str) -> None:
    assert is_ours(address, host) is OURS[address, host]


@pytest.mark.parametrize("value", ["none", "open", ("example.org", "*.example.org:8443"), ()])
def test_what_a_network_may_be(value: str | tuple[str, ...]) -> None:
    assert check_network(value) == value


@pytest.mark.parametrize(
    ("value", "said"),
    [("closed", "neither none, nor open, nor a list of hosts"), (("example.org", "a b"), "'a b' names no host")],
)
def test_what_is_no_network(value: str | tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_network(value)
