"""evalfleet as it is measured: a project, its command lines, a warm embedded server and a running Ray."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Bench, CommandFailed, Running
from evalfleet.handover import standby_socket
from evalfleet.settings import Settings

SCRIPTS = Path(sys.executable).parent
ORCHESTRATE = SCRIPTS / "orchestrate"

#: A Ray on the loopback interface that asks for no token, and a client that has none to show.
OPEN_RAY = {"RAY_AUTH_MODE": "disabled"}

_EVAL = """\
from typing import Any

from evalfleet import Dataset, T, define_eval, includes


@define_eval(dataset=Dataset.jsonl("rows.jsonl"))
async def sweep(t: T, row: dict[str, Any]) -> None:
    turn = await t.send(row["q"])
    t.check(turn.reply, includes(row["q"]))
"""

_LOGGING_AGENT = """\
import asyncio
import os
import time

from evalfleet import Coverage, Turn, TurnInput, agent, complete, unavailable

_LOG = os.open("<log>", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


@agent(
    coverage=Coverage(
        events=complete,
        actions=unavailable("it has no tools"),
        messages=complete,
        usage=unavailable("it has no model"),
        status=complete,
        data=complete,
    )
)
async def logging(turn: TurnInput, ctx) -> Turn:
    await asyncio.sleep(0.005)
    os.write(_LOG, f"{time.time_ns()} {os.getpid()} {turn.text}\\n".encode())
    return Turn(reply=turn.text)
"""

_SHELL_AGENT = """\
from evalfleet import Coverage, Turn, TurnInput, complete, sandbox_agent, unavailable
from evalfleet.sandbox_ports import Command

_COMMANDS = <commands>


@sandbox_agent(
    coverage=Coverage(
        events=complete,
        actions=unavailable("it has no tools"),
        messages=complete,
        usage=unavailable("it has no model"),
        status=complete,
        data=complete,
    )
)
async def shell(turn: TurnInput, ctx) -> Turn:
    for argv in _COMMANDS:
        done = await ctx.sandbox.run(Command(argv=tuple(part.replace("<text>", turn.text) for part in argv)))
    return Turn(reply=done.text.strip())
"""

_COMMANDS = (("sh", "-c", "echo <text> > f"), ("sha256sum", "f"), ("cat", "f"))


def row_text(index: int) -> str:
    """What the agent is sent for a row, and answers."""
    return f"row-{index}"


def shell_commands(text: str) -> tuple[tuple[str, ...], ...]:
    """The three commands of a row of W3; the last one prints the text."""
    return tuple(tuple(part.replace("<text>", text) for part in argv) for argv in _COMMANDS)


def _scenario(index: int) -> dict[str, object]:
    text = row_text(index)
    check = {"id": "said", "kind": "check", "path": ["reply"], "operator": "contains", "value": text}
    step = {"id": "ask", "input": {"text": text}, "assertions": [check]}
    return {"id": str(index), "name": text, "writePolicy": "read_only", "steps": [step]}


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with an eval over n rows and an experiment that names one arm."""

    folder: Path
    n: int

    @property
    def experiment(self) -> Path:
        return self.folder / "experiment.yaml"

    @classmethod
    def write(cls, folder: Path, n: int, *, lanes: int = 100, arm: str = "{adapter: scripted}") -> Project:
        evals = folder / "evals"
        evals.mkdir(parents=True)
        (evals / "sweep.eval.py").write_text(_EVAL)
        with (evals / "rows.jsonl").open("w") as rows:
            rows.writelines(json.dumps({"q": row_text(index)}) + "\n" for index in range(n))
        (folder / "experiment.yaml").write_text(
            "schema_version: 1\n"
            f"name: rows-{n}\n"
            'evals: {select: ["sweep"]}\n'
            f"arms:\n  echo: {arm}\n"
            f"limits: {{concurrency: {lanes}}}\n"
        )
        return cls(folder, n)

    @classmethod
    def with_suite(cls, folder: Path, n: int) -> Project:
        """The same rows as scenarios of one suite, each with one step and one criterion."""
        project = cls.write(folder, n)
        for file in (folder / "evals").iterdir():
            file.unlink()
        suite = {"schemaVersion": 1, "id": "sweep", "name": "Sweep", "scenarios": [*map(_scenario, range(n))]}
        (folder / "evals" / "sweep.suite.json").write_text(json.dumps(suite))
        return project

    @classmethod
    def with_logging_agent(cls, folder: Path, n: int, log: Path, lanes: int) -> Project:
        """Its agent takes 5 ms and appends a line `nanoseconds pid row` to `log` at each execution."""
        project = cls.write(folder, n, lanes=lanes, arm='{adapter: python, entry: "agents:logging"}')
        (folder / "agents.py").write_text(_LOGGING_AGENT.replace("<log>", str(log)))
        return project

    @classmethod
    def with_shell_agent(cls, folder: Path, n: int, lanes: int, backend: str, image: str | None) -> Project:
        """Its agent runs three commands in a sandbox of `backend`, and answers with what the last one printed."""
        named = "" if image is None else f", image: {json.dumps(image)}"
        arm = f'{{adapter: python, entry: "agents:shell", sandbox: {{backend: {backend}{named}}}}}'
        project = cls.write(folder, n, lanes=lanes, arm=arm)
        (folder / "agents.py").write_text(_SHELL_AGENT.replace("<commands>", repr(_COMMANDS)))
        return project

    def submit(self, *more: str) -> list[str]:
        return [str(ORCHESTRATE), "submit", "experiment.yaml", *more]


def run_id(stdout: bytes) -> str:
    """The run whose summary a `submit` printed."""
    return stdout.split(maxsplit=2)[1].decode()


@contextmanager
def warm_server(bench: Bench, home: Path) -> Generator[str]:
    """The embedded server of `home`, kept up in an account of its own; its URL."""
    running = bench.start((sys.executable, "-m", "bench.keeper"), Path.cwd(), {"EVALFLEET_HOME": str(home)})
    bench.servers.append(running.account)
    try:
        yield _first_line(running)
    finally:
        bench.servers.remove(running.account)
        bench.end(running.account)


@contextmanager
def running_ray(bench: Bench, temporary: Path) -> Generator[str]:
    """A Ray head node in an account of its own, with this machine's CPUs; its address."""
    port, agent = _free_ports(2)
    argv = (
        *(SCRIPTS / "ray", "start", "--head", "--block", "--disable-usage-stats", "--include-dashboard=false"),
        *("--node-ip-address=127.0.0.1", f"--port={port}"),
        *(f"--dashboard-agent-listen-port={agent}", f"--temp-dir={temporary}", "--object-store-memory=104857600"),
    )
    running = bench.start(argv, Path.cwd(), OPEN_RAY)
    bench.servers.append(running.account)
    try:
        _wait_started(running)
        yield f"127.0.0.1:{port}"
    finally:
        bench.servers.remove(running.account)
        bench.end(running.account)


@contextmanager
def up(bench: Bench, env: Mapping[str, str]) -> Generator[None]:
    """What `orchestrate up` keeps running in this environment, in an account of its own, its standby ready."""
    argv = (sys.executable, "-m", "evalfleet.api.ray_daemon", "evalfleet.cli.standby")
    running = bench.start(argv, Path.cwd(), env)
    bench.servers.append(running.account)
    ready = standby_socket(Settings.from_environment(env))
    try:
        deadline = time.monotonic() + 90
        while not ready.exists():
            if time.monotonic() > deadline or running.account.ended() is not None:
                raise CommandFailed(f"no standby came up: {running.err.read_text()[-400:]}")
            time.sleep(0.05)
        yield
    finally:
        bench.servers.remove(running.account)
        bench.end(running.account)
        ready.unlink(missing_ok=True)


def environment(work: Path) -> dict[str, str]:
    """A user's environment with a home of its own: what this shell exports must not slow or help anybody."""
    home = work / "home"
    home.mkdir(exist_ok=True)
    kept = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"HOME": str(home)}


def _first_line(running: Running) -> str:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and running.account.ended() is None:
        if (said := running.out.read_text()).endswith("\n"):
            return said.splitlines()[0]
        time.sleep(0.05)
    raise CommandFailed(f"the server did not start: {running.err.read_text()[-400:]}")


def _free_ports(count: int) -> list[int]:
    """Free ports below those that the system hands out by itself: until Ray listens there, nobody else may."""
    found: list[int] = []
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found[:count]


def _wait_started(running: Running) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and running.account.ended() is None:
        if "Ray runtime started" in running.out.read_text():
            return
        time.sleep(0.1)
    raise CommandFailed(f"Ray did not start: {running.err.read_text()[-400:]}")
