"""`agent: claude-code`: Anthropic's Claude Code, by `claude -p`. Its session is kept in the place. PURE."""

from __future__ import annotations

import json

from evalfleet.model.coverage import Coverage, complete, partial, unavailable
from evalfleet.model.model_route import Dialect
from evalfleet_adapters.cli.program import DUMMY_KEY, AgentProgram, Launch, Place, Wishes
from evalfleet_adapters.converters.claude_code import is_last, read_transcript

_FLAGS = ("-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions", "--strict-mcp-config")


def _launch(place: Place, wishes: Wishes) -> Launch:
    servers = {name: {"type": "http", "url": url} for name, url in wishes.servers.items()}
    return Launch(
        files={
            "settings.json": json.dumps(dict(wishes.settings)),
            "mcp.json": json.dumps({"mcpServers": servers}),
        },
        env={
            "ANTHROPIC_BASE_URL": place.model_url,
            "ANTHROPIC_AUTH_TOKEN": DUMMY_KEY,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": wishes.model,  # what it asks aside; another model is refused
            "CLAUDE_CODE_SUBAGENT_MODEL": wishes.model,
            "CLAUDE_CONFIG_DIR": place.folder,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",  # else it refuses to skip permissions as root
        },
    )


def _arguments(place: Place, wishes: Wishes, session: str | None) -> tuple[str, ...]:
    resumed = () if session is None else ("--resume", session)
    own = ("--settings", f"{place.folder}/settings.json", "--mcp-config", f"{place.folder}/mcp.json")
    return (*_FLAGS, "--model", wishes.model, *own, *resumed)


CLAUDE_CODE = AgentProgram(
    name="claude-code",
    command="claude",
    version="2.1.197",
    install="npm install -g @anthropic-ai/claude-code@{version}",
    dialect=Dialect.MESSAGES,
    base_url="https://api.anthropic.com",
    coverage=Coverage(
        events=partial("what sub-agents think is not kept"),
        actions=complete,
        messages=complete,
        usage=complete,
        status=complete,
        data=unavailable("not asked for"),
    ),
    launch=_launch,
    arguments=_arguments,
    read=read_transcript,
    is_last=is_last,
)
