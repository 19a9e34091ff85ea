"""Images for containers: found, fetched or built, or judged unfit; once for all sandboxes and not once for each."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import stat
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet_sandboxes.blocking import in_thread, pause
from evalfleet_sandboxes.container_engine import Engine, InspectedImage

#: How long fetching or building one may take, in seconds; no attempt's own time.
_SECONDS = 1800.0
#: How many are fetched or built at once.
_AT_ONCE = 2
#: How often it is looked whether another process has built what is waited for, in seconds.
_LOOK_SECONDS = 0.5
_REPOSITORY = "evalfleet-build"
_SAID_TAIL = 2000


class Images:
    """The images of one process's containers. Whoever asks for one that is on its way waits for it.

    `state` is a directory for locks between the processes of this machine.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._known: dict[str, tuple[str, InspectedImage]] = {}
        self._coming: dict[str, asyncio.Task[tuple[str, InspectedImage]]] = {}
        self._unfit: dict[str, AttemptFailure] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def image(self, engine: Engine, spec: SandboxSpec) -> tuple[str, InspectedImage]:
        """The reference of the spec's image, which the engine has now, and the image.

        Raises AttemptFailure SANDBOX_IMAGE_MISSING, SANDBOX_BUILD_FAILED, or why it is known to be unfit.
        """
        wanted = _wanted(spec)
        if wanted in self._unfit:
            raise self._unfit[wanted]
        if wanted not in self._known:
            if wanted not in self._coming:
                bring = self._fetched if spec.build is None else self._built
                self._coming[wanted] = asyncio.create_task(self._bring(wanted, bring(engine, spec)), name=wanted)
            self._known[wanted] = await asyncio.shield(self._coming[wanted])
        return self._known[wanted]

    def is_unfit(self, spec: SandboxSpec, why: AttemptFailure) -> None:
        """No sandbox can be made of the image: the next ones are told without trying."""
        self._unfit[_wanted(spec)] = why

    async def close(self) -> None:
        for task in self._coming.values():
            task.cancel()
        await asyncio.gather(*self._coming.values(), return_exceptions=True)

    async def _bring(self, wanted: str, bringing: Awaitable[tuple[str, InspectedImage]]) -> tuple[str, InspectedImage]:
        try:
            return await bringing
        except AttemptFailure as failure:
            if failure.code == "SANDBOX_BUILD_FAILED":  # it would fail the same way; what can't be fetched may come yet
                self._unfit[wanted] = failure
            raise
        finally:
            del self._coming[wanted]

    async def _fetched(self, engine: Engine, spec: SandboxSpec) -> tuple[str, InspectedImage]:
        reference = spec.image or ""
        image = await engine.image(reference)
        if image is None:
            async with self._places:
                result = await engine.call("pull", "--quiet", reference, timeout=_SECONDS)
            image = await engine.image(reference)
            if image is None:
                message = f"there is no image {reference} and it can't be fetched; {engine.said(result)}"
                raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_IMAGE_MISSING", message)
        return reference, image

    async def _built(self, engine: Engine, spec: SandboxSpec) -> tuple[str, InspectedImage]:
        folder = Path(spec.build or "")
        if not await in_thread((folder / "Dockerfile").is_file):
            message = f"build: {folder} has no Dockerfile"
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_BUILD_FAILED", message)
        reference = f"{_REPOSITORY}:{await in_thread(content_digest, folder)}"
        async with self._places, _alone(self._state / f"{reference.partition(':')[2]}.lock"):
            image = await engine.image(reference)
            if image is None:
                build = ("build", "--force-rm", "--tag", reference)  # else a failed step's container stays
                result = await engine.call(*build, str(folder.absolute()), timeout=_SECONDS)
                image = await engine.image(reference)
                if image is None:
                    said = (result.stdout + result.stderr)[-_SAID_TAIL:].decode("utf-8", "replace").strip()
                    why = f"took longer than {_SECONDS:g} s" if result.timed_out else f"failed:\n{said}"
                    message = f"building an image from {folder} {why}"
                    raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_BUILD_FAILED", message)
        return reference, image


def content_digest(folder: Path) -> str:
    """What names the image that is built of a folder: its files with their modes, its links. Blocking."""
    digest = hashlib.sha256()
    for path, name in _entries(folder, ""):
        mode = os.lstat(path).st_mode
        body = b""
        if stat.S_ISLNK(mode):
            body = os.fsencode(os.readlink(path))
        elif stat.S_ISREG(mode):
            body = path.read_bytes()
        head = f"{len(os.fsencode(name))} {stat.S_IFMT(mode)} {mode & 0o111} {len(body)} "
        digest.update(head.encode() + os.fsencode(name) + body)
    return digest.hexdigest()[:32]


def _entries(folder: Path, prefix: str) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        yield path, f"{prefix}{path.name}"
        if path.is_dir() and not path.is_symlink():
            yield from _entries(path, f"{prefix}{path.name}/")


@asynccontextmanager
async def _alone(lock: Path) -> AsyncGenerator[None]:
    """Hold a lock that one process of this machine has at a time."""
    descriptor = await in_thread(_opened, lock)
    try:
        while not await in_thread(_locked, descriptor):
            await pause(_LOOK_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _opened(lock: Path) -> int:
    lock.parent.mkdir(parents=True, exist_ok=True)
    return os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wanted(spec: SandboxSpec) -> str:
    return f"image {spec.image}" if spec.build is None else f"build {spec.build}"
