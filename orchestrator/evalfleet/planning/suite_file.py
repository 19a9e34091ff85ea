"""Reads `*.suite.yaml` and `*.suite.json`: a suite, or everything wrong with it at its line and column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.suite import Suite
from evalfleet.planning import yaml_source
from evalfleet.planning.json_source import read_json
from evalfleet.planning.yaml_nodes import place_after
from evalfleet.planning.yaml_source import Plain
from evalfleet.suites.locations import Path as Place
from evalfleet.suites.locations import dotted
from evalfleet.suites.parse import SUITE_INVALID, parse_suite

#: Keys whose plain scalars are text, whatever they look like; what stands below the others is the author's own.
_TEXTS = frozenset({"id", "name", "label", "description", "skipReason", "evaluator", "criterion", "tags"})
_OWN = frozenset({"input", "metadata", "parameters", "value"})


def read_suite(file: Path) -> Suite:
    """The suite in a file. Raises DefinitionError with all problems, each with its file, line, column and field."""
    text = _text(file)
    if file.suffix == ".json":
        source = read_json(text, str(file))
        value = source.value
    else:
        source = yaml_source.read_yaml(text, str(file))
        value = _typed(source.value)

    def place(code: str, message: str, path: Place, *, hint: str | None = None, at_key: bool = False) -> Problem:
        return replace(source.problem(code, message, path, hint=hint, at_key=at_key), field=dotted(path) or None)

    try:
        return parse_suite(value, place, own=True)
    except DefinitionError as error:
        ordered = sorted(error.problems, key=lambda problem: (problem.line or 0, problem.column or 0))
        raise DefinitionError(error.code, ordered) from None


def _typed(value: Any) -> Any:
    """YAML as the JSON that a suite's schema reads."""
    if isinstance(value, dict):
        return {key: _under(key, item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_typed(item) for item in cast("list[Any]", value)]
    return yaml_source.resolve(value)


def _under(key: str, value: Any) -> Any:
    if key in _OWN:
        return yaml_source.resolve(value)
    return _as_text(value) if key in _TEXTS else _typed(value)


def _as_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_text(item) for item in cast("list[Any]", value)]
    return str(value) if isinstance(value, Plain) and not yaml_source.is_null(value) else yaml_source.resolve(value)


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        problem = Problem(SUITE_INVALID, f"can't be read: {error.strerror}", str(file))
    except UnicodeDecodeError as error:
        place = place_after(error.object[: error.start].decode("utf-8-sig"))
        problem = Problem(
            "INVALID_ENCODING", f"not UTF-8 at byte {error.start}: save the file as UTF-8", str(file), *place
        )
    raise DefinitionError(problem.code, [problem])
