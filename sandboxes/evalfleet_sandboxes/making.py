"""What the making and the end of a sandbox have in common in all of our backends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec


class Closable(Protocol):
    """What a sandbox is here."""

    async def close(self) -> None: ...


S = TypeVar("S", bound=Closable)


async def made(sandbox: S, making: Awaitable[None]) -> S:
    """The sandbox once it is made; when that fails or is cancelled it is closed."""
    try:
        await making
    except BaseException:
        await asyncio.shield(sandbox.close())
        raise
    return sandbox


async def close_all(sandboxes: Iterable[Closable]) -> None:
    """Close them at the same time. Raises what the first of them raised, after all had their turn."""
    outcomes = await asyncio.gather(*[sandbox.close() for sandbox in sandboxes], return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def starting_files(spec: SandboxSpec) -> Path | None:
    """The directory that a sandbox starts with, if there is one. Raises AttemptFailure SANDBOX_FILES_MISSING.

    Blocking.
    """
    if spec.files is None:
        return None
    source = Path(spec.files)
    if not source.is_dir():
        message = f"files: {source} is not a directory"
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_FILES_MISSING", message)
    return source


@contextmanager
def bringing_files() -> Generator[None]:
    """Around the copying of the starting files. Raises AttemptFailure SANDBOX_FILES_REFUSED."""
    try:
        yield
    except PermissionError as error:
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_FILES_REFUSED", f"files: {error}") from error


def unresolved_secrets(spec: SandboxSpec) -> Iterator[str]:
    """What a sandbox without the secrets that its spec names has to say."""
    if missing := [name for name in spec.env_from if name not in spec.env]:
        yield f"no access to secrets, which have to be in env by now (env_from: {', '.join(missing)})"
