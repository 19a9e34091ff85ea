"""The way out of an attempt's sandbox: when it is opened, what commands learn of it, and that it is closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.gateways import mounted, opening_of
from evalfleet.execution.state import AttemptState
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, CommandResult, Inlet, Listening, Opening, Routes, Sandbox
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
    """A gateway that remembers what it opened."""

    def __init__(self, *, refused: Sequence[str] = ()) -> None:
        self.refused = refused
        self.opened: list[tuple[Sequence[str], Routes, Open]] = []

    async def open(self, sandbox: Listening, allow: Sequence[str], routes: Routes) -> Open:
        opened = Open(self.refused)
        self.opened.append((allow, routes, opened))
        return opened


async def app(scope: Any, receive: Any, send: Any) -> None:
    """An application that says what it is."""
    await send({"type": "http.response.start", "status": 200})


async def asked(routes: Routes, prefix: str) -> int:
    """The status of an answer."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    await routes[prefix]({"type": "http"}, receive, send)
    return sent[0]["status"]


class Reached(FakeSandbox):
    """A sandbox in whose network something can listen."""

    async def listen(self) -> Inlet:
        return Inlet(descriptor=-1, port=0)


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
    [(allow, routes, opened)] = room.opened
    assert (allow, routes, opened.closed) == (("example.org",), {}, 1)
    assert "sandbox: refused hosts that network does not allow: evil.net:443" in evidence.diagnostics


async def test_nothing_is_opened_that_nobody_needs(attempt: Any) -> None:
    async def body(t: Any) -> None:
        assert (await t.sandbox.run("env")).text == "env"

    room = Room()
    for network in ("none", "open"):
        await attempt(
            body, sandbox=(Networked(), SandboxSpec(network=network)), using={"gateway": room}, allow_no_assertions=True
        )
        assert room.opened == []


class Outlets:
    """Where agents send spans: remembers for which attempts, and which of them are over."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.ended: list[int] = []

    async def open(self, job: Any, redactor: Any) -> Any:
        self.opened.append(job.attempt)
        outlets = self

        class Outlet:
            traceparent = "00-trace-span-01"

            @property
            def routes(self) -> Routes:
                return {"/v1/traces": app}

            def environment(self, base: str | None = None) -> Mapping[str, str]:
                return {"SPANS_GO_TO": base or "http://beside"}

            def end(self) -> None:
                outlets.ended.append(job.attempt)

        return Outlet()


async def test_spans_go_through_the_gateway_of_each_attempt(attempt: Any) -> None:
    async def body(t: Any) -> None:
        assert (
            await t.sandbox.run("env")
        ).text == "EVALFLEET_GATEWAY=http://there NAME=gateway SPANS_GO_TO=http://there"

    room, outlets = Room(), Outlets()
    for network in ("none", "open"):
        spec, using = SandboxSpec(network=network), {"gateway": room, "spans": outlets}
        evidence = await attempt(body, sandbox=(Networked(), spec), using=using, allow_no_assertions=True)
        assert evidence.summary.code is None, evidence.diagnostics
    assert (outlets.opened, outlets.ended) == ([11, 11], [11, 11])
    assert [(allow, list(given)) for allow, given, _ in room.opened] == [((), ["/v1/traces"])] * 2


async def test_what_the_body_mounts_answers_while_it_is_mounted(make_job: Any, make_services: Any) -> None:
    room = Room()
    job = make_job(print, sandbox=(Networked(), SandboxSpec()))
    state = AttemptState(
        replace(job, definition=replace(job.definition, serves=("/mcp",))), make_services(gateway=room)
    )
    opening = opening_of(state, *job.sandbox)
    assert opening is not None
    await opening(Reached(id="s", spec=SandboxSpec(), on_run=print))
    [(_, routes, _)] = room.opened
    assert await asked(routes, "/mcp") == 503
    with mounted(state, "/mcp", app):
        assert await asked(routes, "/mcp") == 200
    assert await asked(routes, "/mcp") == 503


async def test_a_backend_without_a_gateway_says_what_is_not_served(attempt: Any) -> None:
    async def body(t: Any) -> None:
        assert (await t.sandbox.run("echo", "on")).text == "echo on"

    room = Room()
    using = {"gateway": room, "spans": Outlets()}
    sandbox = FakeSandboxes(), SandboxSpec()
    evidence = await attempt(body, sandbox=sandbox, using=using, allow_no_assertions=True)
    assert (evidence.summary.code, room.opened) == (None, [])
    assert evidence.diagnostics == ("sandbox: the backend 'fake' opens no gateway to /v1/traces",)


async def test_a_sandbox_on_the_hosts_network_finds_the_receiver_beside_it(attempt: Any) -> None:
    class Near(FakeSandboxes):
        isolates = False

    provider, outlets = Near(), Outlets()
    using = {"gateway": Room(), "spans": outlets}
    evidence = await attempt(
        lambda t: None, sandbox=(provider, SandboxSpec(env={"MINE": "1"})), using=using, allow_no_assertions=True
    )
    assert (evidence.diagnostics, outlets.ended) == ((), [11])
    (made,) = provider.made
    assert made.spec.env == {"SPANS_GO_TO": "http://beside", "MINE": "1"}


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
