"""What an agent asks to be permitted, and the option that answers it. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalfleet.model.events import MISSING
from evalfleet_adapters.converters.untrusted import mapping, sequence, text

_FIELDS = ("optionId", "name", "kind")


@dataclass(frozen=True, slots=True)
class Option:
    """One answer. `kind` is `allow_once`, `allow_always`, `reject_once` or `reject_always`."""

    id: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A `session/request_permission` with its number. `call` is what it says of its operation."""

    number: Any
    operation: str
    title: str | None
    given: Any
    call: Mapping[str, Any]
    options: tuple[Option, ...]

    @classmethod
    def read(cls, number: Any, params: Mapping[str, Any]) -> Permission:
        """What is not of the protocol's shape is left out."""
        call = mapping(params.get("toolCall"))
        options = [mapping(option) for option in sequence(params.get("options"))]
        return cls(
            number=number,
            operation=text(call.get("toolCallId")) or "",
            title=text(call.get("title")),
            given=call.get("rawInput", MISSING),
            call=call,
            options=tuple(Option(*(text(option.get(name)) or "" for name in _FIELDS)) for option in options),
        )


def chosen(asked: Permission, answer: str) -> Option | None:
    """The option of an answer: `allow` or `deny`, else one by its id or its name; a text of another kind denies."""
    for option in asked.options:
        if answer in (option.id, option.name):
            return option
    wanted = ("allow_once", "allow_always") if answer == "allow" else ("reject_once", "reject_always")
    for kind in wanted:
        for option in asked.options:
            if option.kind == kind:
                return option
    return None


def outcome(option: Option | None) -> dict[str, Any]:
    """The answer on the wire; no option at all cancels."""
    selected = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option.id}
    return {"outcome": selected}
