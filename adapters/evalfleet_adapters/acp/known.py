"""The agents whose files and environment are known, and how each begins to speak the Agent Client Protocol. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evalfleet_adapters.cli.claude_code import CLAUDE_CODE
from evalfleet_adapters.cli.codex import CODEX
from evalfleet_adapters.cli.opencode import OPENCODE
from evalfleet_adapters.cli.program import AgentProgram, Launch, Place, Wishes


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAgent:
    """An agent of `adapter: cli` that speaks the protocol by a command of its own.

    `settings` and `mode` are its own, below those of an arm; the value of each of `model_env` is the arm's model.
    """

    program: AgentProgram
    command: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    model_env: tuple[str, ...] = ()
    mode: str | None = None

    def launch(self, place: Place, wishes: Wishes) -> Launch:
        """Its files and environment. MCP servers are named when a session is opened, not here."""
        own = Wishes(model=wishes.model, settings={**self.settings, **wishes.settings})
        made = self.program.launch(place, own)
        return Launch(files=made.files, env={**made.env, **dict.fromkeys(self.model_env, wishes.model)})


KNOWN: dict[str, KnownAgent] = {
    "opencode": KnownAgent(program=OPENCODE, command=("opencode", "acp")),
    "codex": KnownAgent(
        program=CODEX,
        command=("codex-acp",),
        # the attempt's sandbox is the limit: one of its own does not work inside of it
        settings={"sandbox_mode": "danger-full-access", "approval_policy": "never"},
    ),
    "claude-code": KnownAgent(
        program=CLAUDE_CODE,
        command=("claude-agent-acp",),
        model_env=("ANTHROPIC_MODEL",),
        mode="bypassPermissions",  # its own judges calls by a model
    ),
}
