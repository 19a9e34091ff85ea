"""What planning tests build on: adapters that answer nothing, and small projects on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from evalfleet.errors import ConfigurationError
from evalfleet.model.coverage import COMPLETE_COVERAGE, Coverage
from evalfleet.ports import AdapterContext, AgentIdentity, ArmSettings, Session

DATA = Path(__file__).parents[2] / "data"
REPO = Path(__file__).parents[3]


class FakeOptions(BaseModel):
    """Options as an adapter declares them: strict, nothing extra."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: str
    temperature: float = 1.0
    max_tokens: int | None = None
    headers: dict[str, str] = {}
    stop: str | list[str] | None = None


class EmptyOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    entry: str | None = None


@dataclass(frozen=True)
class QuietAdapter:
    """An adapter that planning may build, ask and close, but never opens."""

    sandboxed: bool = False
    coverage: Coverage = COMPLETE_COVERAGE

    async def open(self, ctx: AdapterContext) -> Session:
        raise AssertionError("planning opened a session")

    async def close(self) -> None: ...


@dataclass(frozen=True)
class QuietFactory:
    """A factory that identifies its agent as it is told to."""

    name: str = "fake"
    options: type[BaseModel] = EmptyOptions
    sandboxed: bool = False
    identity: AgentIdentity = field(default_factory=lambda: AgentIdentity(version="1", digest="agent"))
    refuses: str | None = None

    def identify(self, arm: ArmSettings) -> AgentIdentity:
        if self.refuses is not None:
            raise ConfigurationError(self.refuses)
        return self.identity

    def build(self, arm: ArmSettings) -> QuietAdapter:
        return QuietAdapter(sandboxed=self.sandboxed)


FACTORIES = {"fake": QuietFactory(options=FakeOptions)}
BACKENDS = ("bubblewrap", "container", "local")


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below `root`, and give it back."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def places(problems: Any) -> list[tuple[str, str | None]]:
    """Code and `line:column` of each problem."""
    return [(problem.code, f"{problem.line}:{problem.column}") for problem in problems]
