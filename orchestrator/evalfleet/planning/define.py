"""`define_eval` and `define_score_eval`: how an author declares an Eval."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any, TypedDict, Unpack, cast, overload

from pydantic import ValidationError

from evalfleet.errors import AuthoringError
from evalfleet.model.changes import DEFAULT_IGNORED, TrackChanges
from evalfleet.model.definition import EvalDefinition, SandboxSpec, SourcePlace
from evalfleet.model.destination import check_network
from evalfleet.model.experiment import JudgeLayer
from evalfleet.model.path_pattern import ignore_rules
from evalfleet.model.quantity import parse_duration
from evalfleet.model.verdict import Style
from evalfleet.planning.dataset import Dataset
from evalfleet.planning.typed import nearest


class EvalOptions(TypedDict, total=False):
    """What an Eval may say about itself; everything is optional.

    `description` is for people. `tags` select. `dataset` fans the Eval out, one row a Case, and the body then
    takes `(t, row)`. `sandbox` is where the agent works. `judge` is True or a mapping of the judge's settings.
    `timeout` is the attempt's deadline, seconds or `"20m"`. `criteria` are files that the Eval judges by, paths or
    patterns relative to its file: what they hold is part of the fingerprint, and no agent starts with them.
    `allow_no_assertions` lets an attempt without assertions pass. `replayable=False` says that the body can't be run
    again on a recording. `serves` are the routes that the body mounts in the gateway of the attempt's sandbox:
    `/mcp` for a body that opens a Task pack. `external` says that the Eval writes to the outside world. `metadata` is
    JSON for selection and reports.
    """

    description: str
    tags: Sequence[str]
    dataset: Dataset
    sandbox: SandboxSpec
    judge: bool | Mapping[str, Any]
    timeout: float | str
    criteria: Sequence[str]
    allow_no_assertions: bool
    replayable: bool
    serves: Sequence[str]
    external: bool
    metadata: Mapping[str, Any]


Decorator = Callable[[Callable[..., object]], EvalDefinition]


@overload
def define_eval(body: Callable[..., object], /) -> EvalDefinition: ...
@overload
def define_eval(**options: Unpack[EvalOptions]) -> Decorator: ...
def define_eval(
    body: Callable[..., object] | None = None, /, **options: Unpack[EvalOptions]
) -> EvalDefinition | Decorator:
    """Declare a pass-style Eval: `@define_eval`, `@define_eval(tags=[…])` or `define_eval(…)(function)`.

    The body takes `t` (and a row, with a dataset) and is sync or async. Its id comes from its file. Raises
    AuthoringError for an unknown or wrong option, or a body that does not take these arguments.
    """
    return _define(body, options, Style.PASS)


@overload
def define_score_eval(body: Callable[..., object], /) -> EvalDefinition: ...
@overload
def define_score_eval(**options: Unpack[EvalOptions]) -> Decorator: ...
def define_score_eval(
    body: Callable[..., object] | None = None, /, **options: Unpack[EvalOptions]
) -> EvalDefinition | Decorator:
    """Declare a score-style Eval; otherwise as `define_eval`."""
    return _define(body, options, Style.SCORE)


def _define(body: Callable[..., object] | None, options: EvalOptions, style: Style) -> EvalDefinition | Decorator:
    given = cast("dict[str, Any]", options)
    _check_names(given)
    fields = {name: check(given[name]) for name, check in _CHECKS.items() if name in given}
    fields["rows"] = fields.pop("dataset", None)
    frame = inspect.currentframe()
    place = _place(frame.f_back.f_back if frame is not None and frame.f_back is not None else None)

    def wrap(target: Callable[..., object]) -> EvalDefinition:
        _check_body(target, rows=fields["rows"] is not None)
        return EvalDefinition(body=target, style=style, place=place, **fields)

    return wrap if body is None else wrap(body)


def _place(frame: FrameType | None) -> SourcePlace | None:
    return None if frame is None else SourcePlace(file=Path(frame.f_code.co_filename), line=frame.f_lineno)


def _check_names(options: Mapping[str, Any]) -> None:
    for name in options:
        if name in ("id", "name"):
            raise AuthoringError(f"an eval's {name} comes from its file: remove {name}=", "UNKNOWN_OPTION")
        if name not in _CHECKS:
            close = get_close_matches(name, _CHECKS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(_CHECKS)}"
            raise AuthoringError(f"{name!r} is not an option of an eval: {hint}", "UNKNOWN_OPTION")


def _check_body(body: Callable[..., object], *, rows: bool) -> None:
    if isinstance(body, EvalDefinition) or not callable(body):
        raise AuthoringError(f"an eval's body is a function, not {type(body).__name__}", "INVALID_BODY")
    takes = "t and row" if rows else "t"
    try:
        inspect.signature(body).bind(*(None,) * (2 if rows else 1))
    except TypeError:
        name = getattr(body, "__name__", "the body")
        message = f"{name} must take {takes}, as positional arguments and nothing else"
        raise AuthoringError(message, "INVALID_BODY") from None


def _expect(kind: type | tuple[type, ...], what: str, name: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise AuthoringError(f"{name} is {what}, not {type(value).__name__}", "INVALID_OPTION")
        return value

    return check


def _tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise AuthoringError("tags is a list of texts", "INVALID_OPTION")
    tags = tuple(cast("Sequence[Any]", value))
    for tag in tags:
        if not isinstance(tag, str) or not tag.strip():
            raise AuthoringError(f"a tag is text, not {tag!r}", "INVALID_OPTION")
    return tuple(dict.fromkeys(tags))


def _criteria(value: Any) -> tuple[str, ...]:
    names = () if isinstance(value, str) or not isinstance(value, Sequence) else tuple(cast("Sequence[Any]", value))
    if not names or not all(isinstance(name, str) and name.strip() and not name.startswith("/") for name in names):
        raise AuthoringError("criteria is a list of paths relative to the eval's file", "INVALID_OPTION")
    return tuple(dict.fromkeys(names))


def _serves(value: Any) -> tuple[str, ...]:
    paths = () if isinstance(value, str) or not isinstance(value, Sequence) else tuple(cast("Sequence[Any]", value))
    if not paths or not all(isinstance(path, str) and re.fullmatch(r"(/[\w.-]+)+", path) for path in paths):
        raise AuthoringError("serves is a list of paths like /mcp", "INVALID_OPTION")
    return tuple(dict.fromkeys(paths))


def _timeout(value: Any) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise AuthoringError(f"timeout {error}", "INVALID_OPTION") from None


def _judge(value: Any) -> bool | Mapping[str, Any]:
    """True, False, or the settings that the eval itself makes, as JSON."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, Mapping):
        raise AuthoringError(f"judge is True or a mapping, not {type(value).__name__}", "INVALID_OPTION")
    try:
        given = JudgeLayer.model_validate_json(json.dumps(dict(cast("Mapping[str, Any]", value))))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        hint = nearest(name, JudgeLayer.model_fields) if first["type"] == "extra_forbidden" else None
        message = "is no setting of a judge" if hint else first["msg"].removeprefix("Value error, ")
        raise AuthoringError(f"judge.{name} {message}{f': {hint}' if hint else ''}", "INVALID_OPTION") from None
    except (TypeError, ValueError) as error:
        raise AuthoringError(f"judge holds what is no setting: {error}", "INVALID_OPTION") from None
    return given.model_dump(mode="json", exclude_unset=True)


def _sandbox(value: Any) -> SandboxSpec:
    if not isinstance(value, SandboxSpec):
        raise AuthoringError(f"sandbox is a SandboxSpec, not {type(value).__name__}", "INVALID_OPTION")
    lists = {name: _texts(name, getattr(value, name)) for name in ("setup", "env_from")}
    if not isinstance(value.network, str):
        lists["network"] = _texts("network", value.network)
    try:
        check_network(value.network if isinstance(value.network, str) else lists["network"])
    except ValueError as error:
        raise AuthoringError(f"sandbox.network: {error}", "INVALID_OPTION") from None
    changes = None if value.changes is None else _changes(value.changes)
    return replace(value, changes=changes, **cast(Any, lists))


def _changes(value: Any) -> TrackChanges:
    if not isinstance(value, TrackChanges):
        raise AuthoringError(f"sandbox.changes is TrackChanges(…), not {type(value).__name__}", "INVALID_OPTION")
    ignore, include = _texts("changes.ignore", value.ignore), _texts("changes.include", value.include)
    try:
        ignore_rules(DEFAULT_IGNORED, ignore, include)
    except AuthoringError as error:
        raise AuthoringError(f"sandbox.changes: {error}", "INVALID_OPTION") from None
    return TrackChanges(ignore=ignore, include=include)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    items = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else (None,)
    if not all(isinstance(item, str) for item in items):
        raise AuthoringError(f"sandbox.{name} is a list of texts", "INVALID_OPTION")
    return tuple(cast("Sequence[str]", items))


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "description": _expect(str, "text", "description"),
    "tags": _tags,
    "dataset": _expect(Dataset, "a Dataset", "dataset"),
    "sandbox": _sandbox,
    "judge": _judge,
    "timeout": _timeout,
    "criteria": _criteria,
    "allow_no_assertions": _expect(bool, "True or False", "allow_no_assertions"),
    "serves": _serves,
    "replayable": _expect(bool, "True or False", "replayable"),
    "external": _expect(bool, "True or False", "external"),
    "metadata": _expect(Mapping, "a mapping", "metadata"),
}
