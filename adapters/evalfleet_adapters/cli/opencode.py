"""`agent: opencode`: opencode, by `opencode run`. The conversation is one of its sessions, kept in the place. PURE."""

from __future__ import annotations

import json

from evalfleet.model.coverage import Coverage, complete, partial, unavailable
from evalfleet.model.model_route import Dialect
from evalfleet_adapters.cli.program import DUMMY_KEY, AgentProgram, Launch, Place, Wishes
from evalfleet_adapters.converters.opencode_run import is_last, read_transcript

#: A title of its own, else it has the model make one, of which the transcript says nothing.
_FLAGS = ("run", "--format", "json", "--auto", "--thinking", "--title", "evalfleet")


def _launch(place: Place, wishes: Wishes) -> Launch:
    model = f"evalfleet/{wishes.model}"
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "evalfleet",
        "options": {"baseURL": f"{place.model_url}/v1", "apiKey": DUMMY_KEY},
        "models": {wishes.model: {"name": wishes.model}},
    }
    config = {
        "share": "disabled",
        "autoupdate": False,
        "snapshot": False,
        "agent": {"title": {"disable": True}},
        **wishes.settings,
        "model": model,
        "small_model": model,
        "provider": {"evalfleet": provider},
        "mcp": {name: {"type": "remote", "url": url} for name, url in wishes.servers.items()},
    }
    return Launch(
        files={"opencode.json": json.dumps(config)},
        env={
            "OPENCODE_CONFIG": f"{place.folder}/opencode.json",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            **{f"XDG_{kind}_HOME": f"{place.folder}/{kind.lower()}" for kind in ("DATA", "CONFIG", "STATE", "CACHE")},
        },
    )


def _arguments(_: Place, __: Wishes, session: str | None) -> tuple[str, ...]:
    return _FLAGS if session is None else (*_FLAGS, "--session", session)


OPENCODE = AgentProgram(
    name="opencode",
    command="opencode",
    version="1.18.33",
    install="npm install -g opencode-ai@{version}",
    dialect=Dialect.CHAT,
    base_url="https://api.openai.com/v1",
    coverage=Coverage(
        events=partial("reasoning may be hidden, and what sub-agents do is not told"),
        actions=partial("what sub-agents do is not told"),
        messages=complete,
        usage=partial("what sub-agents use is not told"),
        status=complete,
        data=unavailable("not asked for"),
    ),
    launch=_launch,
    arguments=_arguments,
    read=read_transcript,
    is_last=is_last,
)
