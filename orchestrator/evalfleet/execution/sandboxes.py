"""The attempt's sandbox: made before the test body, with the fixture's visible files in it, and closed after."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from evalfleet.errors import AttemptFailure, ConfigurationError, FailureKind, boundary
from evalfleet.execution.attribution import WorkdirWatch
from evalfleet.execution.gateways import close_gateway, opening_of
from evalfleet.execution.git import CaptureError
from evalfleet.execution.job import AttemptJob
from evalfleet.execution.probing import SandboxProbe
from evalfleet.execution.sandbox_stay import SandboxStay
from evalfleet.execution.signals import AttemptEnded
from evalfleet.execution.state import AttemptState
from evalfleet.model.canonical import digest
from evalfleet.model.changes import TrackChanges
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.sandbox import SandboxEntry, SandboxState
from evalfleet.planning.criteria import matching
from evalfleet.sandbox_ports import Sandbox

#: Never copied into a sandbox: the eval itself and its prompt.
_HIDDEN_NAMES = frozenset({"eval.py", "PROMPT.md", "__pycache__"})

#: Seconds after the deadlines of its attempt in which a sandbox is closed by all means, and what it may take without.
_CLOSED_WITHIN, _UNLIMITED = 3600.0, 7 * 86_400.0

_NOT_FOLLOWED = "CHANGES_NOT_FOLLOWED"


async def open_sandbox(state: AttemptState) -> None:
    """Create the sandbox, if the attempt has one. Raises AttemptFailure of kind sandbox."""
    job = state.job
    if job.sandbox is None:
        return
    provider, spec = job.sandbox
    entry, clock = _entry(provider.name, spec, state), state.services.clock
    stay = state.stay = SandboxStay(provider, entry, clock, state.services.sandbox_ledger, state.note)
    with boundary(FailureKind.SANDBOX, "SANDBOX_FAILED"):
        sandbox = await stay.begin(_resolved(spec, state), opening_of(state, provider, spec))
        if state.control is not None and state.control.sandbox_made is not None:
            state.control.sandbox_made(stay.use.making)
        if state.broken_off is not None:  # a provider that ignored its cancellation: nobody else would close it
            await stay.end()
            raise AttemptEnded
        if job.recorded is None:
            _look_after(sandbox, state)
        _note(sandbox, state)
        if job.definition.fixture is not None and spec.files is None:
            visible = await asyncio.to_thread(lambda: list(_visible(job, job.definition.fixture or job.folder)))
            for path, target in visible:
                await sandbox.upload(path, target)
        if spec.changes is not None:
            await _follow(sandbox, spec.changes, state)


async def last_look(state: AttemptState) -> None:
    """See that the sandbox is still there after the body: what came of a body whose sandbox went away is no result.

    Raises AttemptFailure of kind sandbox when that can't be told.
    """
    if state.probe is not None:
        state.probe.stop(state.services.threads)
    if state.sandbox is None or state.broken_off is not None:
        return
    _note(state.sandbox, state)
    with boundary(FailureKind.SANDBOX, "SANDBOX_FAILED"):
        try:
            await state.sandbox.probe()
        except AttemptFailure as failure:
            state.lose_sandbox(failure)


async def close_sandbox(state: AttemptState, *, keep: bool = False) -> None:
    """End and remove the sandbox, if there is one, or leave it in place. Raises AttemptFailure of kind sandbox."""
    with boundary(FailureKind.SANDBOX, "SANDBOX_CLOSE_FAILED"):
        async with AsyncExitStack() as closing:
            if state.watch is not None:
                closing.push_async_callback(state.watch.close)
            if state.stay is not None:
                closing.push_async_callback(_leave, state.stay, state, keep)
            await close_gateway(state)


async def _follow(sandbox: Sandbox, tracking: TrackChanges, state: AttemptState) -> None:
    """Take what files and setup made as the baseline: nothing of it is the agent's."""
    tool = state.services.git
    if tool is None:
        raise AttemptFailure(FailureKind.SANDBOX, _NOT_FOLLOWED, "there is no git here to follow the workdir with")
    watch = state.watch = WorkdirWatch(tool, sandbox, tracking)
    try:
        await watch.begin()
    except CaptureError as error:
        message = f"the changes in the workdir can't be followed: {error}"
        raise AttemptFailure(FailureKind.SANDBOX, _NOT_FOLLOWED, message) from error


async def _leave(stay: SandboxStay, state: AttemptState, keep: bool) -> None:
    if keep:
        await stay.keep()
    else:
        lost = state.failure is not None and state.failure.code == "SANDBOX_LOST"
        await stay.end(SandboxState.LOST if lost else SandboxState.GONE)


def _note(sandbox: Sandbox, state: AttemptState) -> None:
    """Keep what the sandbox has noticed and is not kept yet: some of it shows only when it is used."""
    notices: tuple[str, ...] = getattr(sandbox, "notices", ())  # to ask for `Unenforced` takes ten times as long
    for notice in notices:
        state.note_once(f"sandbox: {notice}")


def _look_after(sandbox: Sandbox, state: AttemptState) -> None:
    def lost(failure: AttemptFailure) -> None:
        state.lose_sandbox(failure)
        if state.on_lost is not None:
            state.on_lost(failure)

    state.probe = SandboxProbe(sandbox, lost, state.note)
    state.probe.start()


def _entry(backend: str, spec: SandboxSpec, state: AttemptState) -> SandboxEntry:
    job, left = state.job, state.remaining()
    return SandboxEntry(
        backend=backend,
        owner=f"{job.run}/{job.attempt}",
        run=job.run,
        attempt=job.attempt,
        case=job.case.ordinal,
        eval_id=job.case.eval_id,
        template=digest([spec.image, spec.files, list(spec.setup)]),
        ttl=_UNLIMITED if left is None else left + job.grading_timeout + _CLOSED_WITHIN,
    )


def _resolved(spec: SandboxSpec, state: AttemptState) -> SandboxSpec:
    """The spec with an absolute `files`, and with the named secrets in its environment, under their names in it."""
    files = None if spec.files is None else str(state.job.folder / spec.files)
    allowed = frozenset(spec.env_from)
    secrets = dict(_secret(each, allowed, state) for each in spec.env_from)
    return replace(spec, files=files, env={**_sending(state), **spec.env, **secrets}, env_from=tuple(secrets))


def _sending(state: AttemptState) -> Mapping[str, str]:
    """Where commands send spans that are on the host's own network; a gateway says it to all others."""
    if state.outlet is None or state.job.sandbox is None or state.job.sandbox[0].isolates:
        return {}
    return state.outlet.environment()


def _secret(asked: str, allowed: frozenset[str], state: AttemptState) -> tuple[str, str]:
    """The variable that one of `env_from` asks for, and its value: the secret's, or its default.

    Under another name there are only those secrets that are `allowed`: the ones that stand beside it by their own.
    """
    variable, renamed, reference = asked.partition("=")
    name, has_default, default = (reference or variable).partition(":-")
    if renamed and has_default and name not in allowed:
        return variable, default
    try:
        return variable, state.secrets.resolve(name)
    except ConfigurationError:
        if not has_default:
            raise
        return variable, default


def _visible(job: AttemptJob, folder: Path) -> Iterator[tuple[Path, str]]:
    """What of a fixture the agent may see, as few uploads: not the eval, its criteria, its modules and rows."""
    hidden = {Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    rows = getattr(job.definition.rows, "path", None)
    if isinstance(rows, Path):
        hidden.add(rows)
    for text in job.definition.criteria:
        hidden |= set(matching(job.folder, text))
    yield from _entries(folder, folder, {path for path in hidden if path.is_relative_to(folder)})


def _entries(folder: Path, top: Path, hidden: set[Path]) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.iterdir()):
        if path in hidden or path.name in _HIDDEN_NAMES:
            continue
        if path.is_dir() and any(inner.is_relative_to(path) for inner in hidden):
            yield from _entries(path, top, hidden)
        else:
            yield path, path.relative_to(top).as_posix()
