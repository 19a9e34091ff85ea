"""What a replayed body gets where nothing was recorded: it can be handed on and asserted on, never decided on.

An assertion on it is unavailable with the reason `not-recorded`. A body that decides by it (a condition, a comparison,
a text made of it) would go another way than it did, so it ends there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn, cast

from evalfleet.execution.signals import BodyEnd
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, CommandResult, Execution, FoundSandbox, Sandbox

#: The reason of an assertion on it.
NOT_RECORDED = "not-recorded"
#: The code of an attempt whose body decides by it.
NOT_RECORDED_CODE = "NOT_RECORDED"


class NotRecorded(BodyEnd):
    """The body decides by what was not recorded."""


def _undecided(*_: Any, **__: Any) -> NoReturn:
    raise NotRecorded


class Unrecorded:
    """A value that nobody knows. Its attributes, its items and what calling it gives are as unknown."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Unrecorded:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _: Any) -> Unrecorded:
        return self

    def __call__(self, *_: Any, **__: Any) -> Unrecorded:
        return self

    def __copy__(self) -> Unrecorded:
        return self

    def __deepcopy__(self, _: Any) -> Unrecorded:
        return self

    def __repr__(self) -> str:
        return f"<{NOT_RECORDED}>"

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What `isinstance` asks for: code that tells types apart decides by the value."""
        raise NotRecorded

    __bool__ = __len__ = __iter__ = __contains__ = __hash__ = __str__ = __format__ = __bytes__ = _undecided
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __int__ = __float__ = __index__ = _undecided
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __mod__ = _undecided


UNRECORDED = Unrecorded()


class UnrecordedSandbox:
    """The sandbox of a replay: what is put in goes nowhere, what would come out was not recorded.

    It is its own provider, one for each replay; `used` says whether the body got anything of it.
    """

    name = id = NOT_RECORDED
    isolates = True
    outlives = False
    tree = None

    def __init__(self) -> None:
        self.used = False

    @property
    def workdir(self) -> str:
        return cast("str", self._unknown())

    async def check(self) -> None: ...

    async def create(self, spec: SandboxSpec, owner: str) -> Sandbox:
        return self

    async def run(self, command: Command) -> CommandResult:
        return cast("CommandResult", self._unknown())

    async def start(self, command: Command) -> Execution:
        return cast("Execution", self._unknown())

    async def attach(self, execution: str) -> Execution:
        return cast("Execution", self._unknown())

    async def probe(self) -> None: ...

    async def read(self, path: str) -> bytes:
        return cast("bytes", self._unknown())

    async def write(self, path: str, data: bytes) -> None: ...

    async def upload(self, source: Path, target: str) -> None: ...

    async def download(self, source: str, target: Path) -> None:
        self.used = True
        raise NotRecorded

    async def export(self, target: Path) -> None:
        self.used = True
        raise NotRecorded

    async def reset(self) -> None: ...

    async def found(self) -> list[FoundSandbox]:
        return []

    async def reap(self, sandbox: FoundSandbox) -> None: ...

    async def close(self) -> None: ...

    def _unknown(self) -> Unrecorded:
        self.used = True
        return UNRECORDED
