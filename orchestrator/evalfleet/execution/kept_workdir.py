"""The workdir as an agent left it, kept where what judges it came to no verdict, so that it can be judged later.

It is copied before it is judged, and the copy becomes part of the evidence only when a grader or the sandbox failed:
`regrade` makes a sandbox anew, puts it there, and the body judges that without its agent.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.state import AttemptState
from evalfleet.execution.unrecorded import NotRecorded
from evalfleet.model.record import KEPT_WORKDIR
from evalfleet.redact import Redactor
from evalfleet.sandbox_ports import Command, Sandbox
from evalfleet.tarballs import tar_of

#: Bytes that are kept of a workdir, as they are and packed: more would weigh on whatever reads the attempt.
_LIMIT, _PACKED_LIMIT = 1 << 28, 1 << 24
_SECONDS = 300.0
#: Whose failures leave a workdir that something else could still judge.
_UNDECIDED = frozenset({FailureKind.GRADER, FailureKind.SANDBOX})
#: In the workdir of a sandbox that is as its template made it; stdin is the kept one.
_PUT_BACK = "find . -mindepth 1 -maxdepth 1 -exec rm -rf -- {} + && tar -xzpf -"


class NotKept(Exception):
    """Why a workdir is not kept."""


@asynccontextmanager
async def kept_unless_decided(state: AttemptState, sandbox: Sandbox, beside: Mapping[str, Any]) -> AsyncGenerator[None]:
    """Around what judges a workdir once its agent is done; `beside` is a JSON document that is kept with it.

    In a replay of an attempt that kept its workdir, that is in the sandbox when the block begins. Raises AttemptFailure
    of kind sandbox where it can't be put there.
    """
    if state.job.recorded is not None:
        if (kept := state.job.recorded.attachments.get(KEPT_WORKDIR)) is None:
            raise NotRecorded
        await _put_back(sandbox, kept["tar"])
        # it is where it belongs now; who sees it still here knows that its body did not ask for it
        state.attachments = {name: value for name, value in state.attachments.items() if name != KEPT_WORKDIR}
        yield
        return
    folder = await asyncio.to_thread(_private_folder, state)
    try:
        copy, fault = Path(folder.name) / "workdir", None
        copy.mkdir()
        try:
            await sandbox.export(copy)
        except (AttemptFailure, OSError) as error:
            fault = f"it could not be copied: {error}"
        try:
            yield
        except AttemptFailure as failure:
            if failure.kind in _UNDECIDED:
                await _keep(state, copy, beside, fault)
            raise
    finally:
        await asyncio.to_thread(folder.cleanup)


def notes_beside(state: AttemptState) -> Mapping[str, Any] | None:
    """In a replay on a kept workdir, the document beside it; None where an agent works."""
    kept = None if state.job.recorded is None else state.job.recorded.attachments.get(KEPT_WORKDIR)
    return None if kept is None else kept["beside"]


def _private_folder(state: AttemptState) -> tempfile.TemporaryDirectory[str]:
    """A folder that is swept when this process dies; where nothing runs for long, any."""
    if state.services.git is None:
        return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    return state.services.git.folders.make()


async def _keep(state: AttemptState, copy: Path, beside: Mapping[str, Any], fault: str | None) -> None:
    try:
        if fault is not None:
            raise NotKept(fault)
        tar = await asyncio.to_thread(packed, copy, state.secrets.redactor)
    except (NotKept, OSError) as error:
        state.note(f"the workdir is not kept, so that this attempt can't be judged again without its agent: {error}")
        return
    state.attachments = {**state.attachments, KEPT_WORKDIR: {"beside": dict(beside), "tar": tar}}


def packed(folder: Path, redactor: Redactor) -> str:
    """What is in the folder as a compressed tar in base64. Blocking. Raises NotKept."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    if sum(path.lstat().st_size for path in files.values()) > _LIMIT:
        raise NotKept(f"it holds more than {_LIMIT >> 20} MiB")
    for name, path in files.items() if redactor else ():
        if path.is_file() and not path.is_symlink() and redactor.data(content := path.read_bytes()) != content:
            raise NotKept(f"{name} holds a secret, which nothing that is kept may show")
    compressed = gzip.compress(tar_of(files), compresslevel=6, mtime=0)
    if len(compressed) > _PACKED_LIMIT:
        raise NotKept(f"it takes {len(compressed) >> 20} MiB packed, more than {_PACKED_LIMIT >> 20}")
    return base64.b64encode(compressed).decode("ascii")


async def _put_back(sandbox: Sandbox, tar: str) -> None:
    try:
        packed = base64.b64decode(tar, validate=True)
    except ValueError:
        raise _not_put_back("what is kept of it is damaged") from None
    result = await sandbox.run(Command(argv=("sh", "-c", _PUT_BACK), stdin=packed, timeout=_SECONDS))
    if not result.ok:
        said = result.stderr.decode("utf-8", "replace").strip()[-300:]
        raise _not_put_back(said or f"exit code {result.exit_code}")


def _not_put_back(why: str) -> AttemptFailure:
    message = f"the kept workdir could not be put into a new sandbox: {why}"
    return AttemptFailure(FailureKind.SANDBOX, "WORKDIR_NOT_RESTORED", message)
