"""One conversation with a program: set up in the place before its first turn, then a process a turn."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import quote

from evalfleet.errors import SendFailure
from evalfleet.model.model_route import model_prefix
from evalfleet.model.turn import Turn, TurnInput
from evalfleet.model.usage import Usage
from evalfleet.ports import AdapterContext
from evalfleet.sandbox_ports import Command, CommandResult
from evalfleet_adapters.cli.ending import Ended, failed_turn, judge_ending
from evalfleet_adapters.cli.following import Transcript
from evalfleet_adapters.cli.places import PATIENCE, unusable, with_pack, within, without_gateway, write_files
from evalfleet_adapters.cli.program import AgentProgram, Place, Wishes
from evalfleet_adapters.cli.spending import spent_since
from evalfleet_adapters.converters.agent_report import AgentReport
from evalfleet_adapters.converters.json_output import read_output
from evalfleet_adapters.limits import within_deadline

#: What a place says of itself: where its gateway and its home are, and the program's own version.
_LOOK = 'printf "%s\\n" "$EVALFLEET_GATEWAY" "${HOME:-/tmp}"; exec "$1" --version'
_VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all sessions of an arm share. `command` is the program in the place, `grace` is in seconds."""

    program: AgentProgram
    version: str
    command: str
    wishes: Wishes
    grace: float


@dataclass(frozen=True, slots=True)
class _Ready:
    """A place in which the program is set up, and the arm's wishes as that place has them."""

    place: Place
    wishes: Wishes
    env: dict[str, str]


class CliSession:
    """The program keeps the conversation; what is kept here is its id, and what it has used so far."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._ready: _Ready | None = None
        self._spent: Usage | None = None

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        """Run the program once. Raises SendFailure when no trustworthy turn came of it."""
        _refuse_what_is_not_read(turn)
        program = self._setup.program
        transcript = Transcript(program.is_last, self._setup.grace, ctx.clock)
        try:
            async with within_deadline(ctx):
                if self._ready is None:
                    self._ready = await self._set_up(ctx)
                ready = self._ready
                argv = (self._setup.command, *program.arguments(ready.place, ready.wishes, ctx.session.id))
                command = Command(argv=argv, env=ready.env, stdin=turn.text.encode("utf-8", "replace"))
                result = await transcript.follow(ctx.sandbox, command)
        except SendFailure as failure:
            if failure.partial is None and transcript.data:
                failure.partial = failed_turn(self._read(transcript, ctx)[0])
            raise
        report, noise = self._read(transcript, ctx)
        judged = judge_ending(report, _ended(result, transcript, noise))
        if judged.warning is not None:
            ctx.log(f"{program.name}: {judged.warning}")
        if isinstance(judged.turn, SendFailure):
            raise judged.turn
        return judged.turn

    async def close(self) -> None: ...

    def _read(self, transcript: Transcript, ctx: AdapterContext) -> tuple[AgentReport, str]:
        """What the transcript says of this turn, and what stands in it that is none."""
        program = self._setup.program
        output = read_output(bytes(transcript.data))
        report = program.read(output.documents)
        ctx.session.capture(report.session)
        if report.unknown:
            ctx.log(
                f"{program.name} {self._setup.version}: {len(report.unknown)} kinds of events that this version of the "
                f"adapter does not know are kept as they came: {', '.join(report.unknown[:10])}"
            )
        if output.noise:
            ctx.log(f"{program.name}: {len(output.noise)} lines of its output are no JSON: {output.noise[0][:200]}")
        if program.whole_usage:
            before, self._spent = self._spent, report.usage or self._spent
            report = replace(report, usage=spent_since(before, report.usage))
        return report, "\n".join(output.noise)

    async def _set_up(self, ctx: AdapterContext) -> _Ready:
        """Look whether the program is there as the arm wants it, and write its files."""
        setup, sandbox = self._setup, ctx.sandbox
        look = Command(argv=("sh", "-c", _LOOK, "evalfleet", setup.command), timeout=PATIENCE)
        seen = await sandbox.run(look)
        gateway, home, said = (*seen.text.split("\n", 2), "", "", "")[:3]
        self._check_program(seen, said)
        if not gateway:
            raise without_gateway()
        place = Place(
            model_url=f"{gateway}{quote(model_prefix(ctx.arm))}", folder=f"{home}/.evalfleet-agent/{setup.program.name}"
        )
        named = with_pack(setup.wishes.servers) if ctx.tools else setup.wishes.servers
        wishes = replace(setup.wishes, servers=within(gateway, named))
        launch = setup.program.launch(place, wishes)
        await write_files(sandbox, place.folder, launch.files)
        return _Ready(place, wishes, dict(launch.env))

    def _check_program(self, seen: CommandResult, said: str) -> None:
        setup = self._setup
        install = setup.program.install.format(version=setup.version)
        if not seen.ok:
            error = seen.stderr.decode("utf-8", "replace").strip()[-300:]
            raise unusable(
                "AGENT_MISSING",
                f"{setup.command} --version does not work in the sandbox ({error}); install it there: {install}",
            )
        found = _VERSION.search(said)
        if found is None or found[0] != setup.version:
            raise unusable(
                "AGENT_VERSION",
                f"{setup.command} is {said.strip()[:100]!r}, not {setup.version}: {install}, or set `version`",
            )


def _refuse_what_is_not_read(turn: TurnInput) -> None:
    """A program reads a text. Raises SendFailure for all else."""
    given = (("files", turn.files), ("responses", turn.responses), ("output_schema", turn.output_schema))
    for name, value in given:
        if value:
            raise unusable("INPUT_UNSUPPORTED", f"the turn has {name}, which a program of `adapter: cli` does not read")


def _ended(result: CommandResult, transcript: Transcript, noise: str) -> Ended:
    return Ended(
        exit_code=result.exit_code,
        signal=result.signal,
        overdue=transcript.overdue,
        stderr=result.stderr.decode("utf-8", "replace"),
        noise=noise,
    )
