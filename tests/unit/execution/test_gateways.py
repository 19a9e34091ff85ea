"""The way out of an attempt's sandbox: when it is opened, what commands learn of it, and that it is closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, CommandResult, Listening, Opening, Sandbox
from evalfleet.testing.fakes import FakeSandbox, FakeSandboxes


class Open:
    """An open gateway that remembers whether it was closed."""

    environment: Mapping[str, str] = {"EVALFLEET_GATEWAY": "http://there", "NAME": "gateway"}

    def __init__(self, refused: Sequence[str]) -> None:
        self.refused = refused
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


class Room:
    """A gateway that is needed where hosts are allowed, or always."""

    def __init__(self, *, always: bool = False, refused: Sequence[str] = ()) -> None:
        self.always = always
        self.refused = refused
        self.opened: list[tuple[int, Sequence[str], Open]] = []

    def is_needed(self, attempt: int, allow: Sequence[str]) -> bool:
        return self.always or bool(allow)

    async def open(self, sandbox: Listening, attempt: int, allow: Sequence[str]) -> Open:
        opened = Open(self.refused)
        self.opened.append((attempt, allow, opened))
        return opened


class Reached(FakeSandbox):
    """A sandbox in whose network something can listen."""

    async def listen(self) -> int:
        return -1


class Networked(FakeSandboxes):
    """Sandboxes that are `Reachable`; a command prints the environment that it finds."""

    async def create_reachable(self, spec: SandboxSpec, owner: str, opening: Opening) -> Sandbox:
        opened: Mapping[str, str] = {}

        def run(command: Command) -> CommandResult:
            said = " ".join(f"{name}={value}" for name, value in sorted({**opened, **command.env}.items()))
            return CommandResult(exit_code=0, stdout=said.encode(), stderr=b"", duration=0.0)

        sandbox = Reached(id=owner, spec=spec, on_run=run)
        self.made.append(sandbox)
        opened = await opening(sandbox)
        return sandbox


async def test_commands_find_the_gateway_and_it_is_closed_with_the_attempt(attempt: Any) -> None:
    said: list[str] = []

    async def body(t: Any) -> None:
        said.append((await t.sandbox.run("env", env={"NAME": "mine"})).text)

    room, spec = Room(refused=("evil.net:443", "evil.net:443")), SandboxSpec(network=("example.org",))
    evidence = await attempt(body, sandbox=(Networked(), spec), using={"gateway": room}, allow_no_assertions=True)
    assert said == ["EVALFLEET_GATEWAY=http://there NAME=mine"]
    [(number, allow, opened)] = room.opened
    assert (number, allow, opened.closed) == (11, ("example.org",), 1)
    assert "sandbox: refused hosts that network does not allow: evil.net:443" in evidence.diagnostics


async def test_nothing_is_opened_that_nobody_needs(attempt: Any) -> None:
    async def body(t: Any) -> None:
        assert (await t.sandbox.run("env")).text == "env"

    for network, room in (("none", Room()), ("open", Room(always=True))):
        await attempt(
            body, sandbox=(Networked(), SandboxSpec(network=network)), using={"gateway": room}, allow_no_assertions=True
        )
        assert room.opened == []


async def test_a_network_that_nobody_closes_needs_no_way_out(attempt: Any) -> None:
    async def body(t: Any) -> None:
        assert (await t.sandbox.run("echo", "on")).text == "echo on"

    class Open(FakeSandboxes):
        isolates = False

    room, spec = Room(), SandboxSpec(network=("example.org",))
    summary = (await attempt(body, sandbox=(Open(), spec), using={"gateway": room}, allow_no_assertions=True)).summary
    assert (summary.code, room.opened) == (None, [])


async def test_hosts_that_a_backend_can_not_let_through_are_refused(attempt: Any) -> None:
    async def body(t: Any) -> None:
        raise AssertionError("the body ran")

    spec = SandboxSpec(backend="fake", network=("example.org",))
    provider = FakeSandboxes()
    summary = (await attempt(body, sandbox=(provider, spec), using={"gateway": Room()})).summary
    assert (summary.kind, summary.code, provider.made) == (FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED", [])


async def test_a_sandbox_that_is_not_made_after_all_leaves_no_gateway_open(attempt: Any) -> None:
    async def body(t: Any) -> None:
        raise AssertionError("the body ran")

    class Failing(Networked):
        async def create_reachable(self, spec: SandboxSpec, owner: str, opening: Opening) -> Sandbox:
            await super().create_reachable(spec, owner, opening)
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_SETUP_FAILED", "the setup found nothing there")

    room = Room()
    spec = SandboxSpec(network=("example.org",))
    summary = (await attempt(body, sandbox=(Failing(), spec), using={"gateway": room})).summary
    [(_, _, opened)] = room.opened
    assert (summary.code, opened.closed) == ("SANDBOX_SETUP_FAILED", 1)


async def test_a_sandbox_that_is_made_anew_gets_a_gateway_anew(attempt: Any) -> None:
    async def body(t: Any) -> None:
        assert (await t.sandbox.run("env")).text.startswith("EVALFLEET_GATEWAY")

    class Again(Networked):
        async def create_reachable(self, spec: SandboxSpec, owner: str, opening: Opening) -> Sandbox:
            await super().create_reachable(spec, owner, opening)
            return await super().create_reachable(spec, owner, opening)

    room, spec = Room(), SandboxSpec(network=("example.org",))
    await attempt(body, sandbox=(Again(), spec), using={"gateway": room}, allow_no_assertions=True)
    assert [opened.closed for _, _, opened in room.opened] == [1, 1]
