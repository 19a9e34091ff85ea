"""`agent: codex`: OpenAI's Codex, by `codex exec`. The conversation is one of its threads, kept in the place. PURE."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evalfleet.model.coverage import Coverage, complete, partial, unavailable
from evalfleet.model.model_route import Dialect
from evalfleet_adapters.cli.program import DUMMY_KEY, AgentProgram, Launch, Place, Wishes
from evalfleet_adapters.converters.codex_exec import is_last, read_transcript

_FLAGS = ("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")


def _launch(place: Place, wishes: Wishes) -> Launch:
    return Launch(
        files={"config.toml": config(place, wishes)},
        env={"CODEX_HOME": place.folder, "EVALFLEET_MODEL_KEY": DUMMY_KEY},
    )


def config(place: Place, wishes: Wishes) -> str:
    """The config.toml: the arm's own settings first, so that none of them is inside of a table of ours."""
    tables = [_table("model_providers.evalfleet", {
        "name": "evalfleet",
        "base_url": f"{place.model_url}/v1",
        "wire_api": "responses",
        "env_key": "EVALFLEET_MODEL_KEY",
    })]  # fmt: skip
    tables += [_table(f"mcp_servers.{json.dumps(name)}", {"url": url}) for name, url in wishes.servers.items()]
    own = {"check_for_update_on_startup": False, **wishes.settings}
    top = {**own, "model": wishes.model, "model_provider": "evalfleet"}
    return "\n".join([*_lines(top), *tables]) + "\n"


def _table(name: str, values: Mapping[str, Any]) -> str:
    return "\n".join([f"\n[{name}]", *_lines(values)])


def _lines(values: Mapping[str, Any]) -> list[str]:
    # what JSON says of texts, numbers, booleans and lists of them, TOML says in the same words
    return [f"{key} = {json.dumps(value)}" for key, value in values.items()]


def _arguments(_: Place, __: Wishes, session: str | None) -> tuple[str, ...]:
    return ("exec", *_FLAGS, "-") if session is None else ("exec", *_FLAGS, "resume", session, "-")


CODEX = AgentProgram(
    name="codex",
    command="codex",
    version="0.171.0",
    install="npm install -g @openai/codex@{version}",
    dialect=Dialect.RESPONSES,
    base_url="https://api.openai.com/v1",
    coverage=Coverage(
        events=partial("reasoning may be hidden"),
        actions=partial("a call that codex refuses by itself is not shown"),
        messages=complete,
        usage=complete,
        status=complete,
        data=unavailable("not asked for"),
    ),
    launch=_launch,
    arguments=_arguments,
    read=read_transcript,
    is_last=is_last,
    whole_usage=True,
)
