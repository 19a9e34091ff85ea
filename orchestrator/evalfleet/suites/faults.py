"""Everything wrong in a suite's document, each thing with its place, its rule and a way out; never a value. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from evalfleet.suites import schema
from evalfleet.suites.locations import Path, at, child, nearest, of_models

_RULES = {
    "missing": "is required",
    "string_type": "must be text",
    "string_unicode": "must be text without halves of surrogate pairs",
    "string_pattern_mismatch": "must be 1 to 160 letters, digits and . _ : - and start with a letter or digit",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "list_type": "must be a list",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
}

#: What version 2 adds to a criterion, by key; for `operator` and `kind` the words that it adds.
_ADDED: dict[str, frozenset[str]] = {
    "operator": frozenset(get_args(schema.Operator2)) - frozenset(get_args(schema.Operator1)),
    "kind": frozenset({"judge"}),
    "severity": frozenset(),
    "tolerance": frozenset(),
}

#: Keys under which criteria stand inside another one.
_NESTING = frozenset({"assertions", "assertion"})

_MODELS: dict[str, type[BaseModel]] = {
    "scenarios": schema.Scenario2,
    "steps": schema.Step2,
    "variants": schema.VariantDocument,
}
_KINDS: dict[int, dict[str, type[BaseModel]]] = {
    1: {
        "check": schema.Check1,
        "all": schema.Composite1,
        "any": schema.Composite1,
        "not": schema.Negation1,
        "custom": schema.Custom1,
    },
    2: {
        "check": schema.Check2,
        "all": schema.Composite2,
        "any": schema.Composite2,
        "not": schema.Negation2,
        "custom": schema.Custom2,
        "judge": schema.Judge2,
    },
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong. `at_key` says that the key is, not what stands there."""

    path: Path
    message: str
    hint: str | None = None
    at_key: bool = False


def schema_faults(error: ValidationError, document: Any, version: int) -> Iterator[Fault]:
    """What the models refuse, one fault a place."""
    seen: set[Path] = set()
    for item in error.errors(include_url=False, include_input=False):
        fault = _fault(item, document, version)
        if fault.path not in seen:
            seen.add(fault.path)
            yield fault


def version_faults(document: Any) -> Iterator[Fault]:
    """`schemaVersion` is 1 or 2, and no True or 1.0."""
    version = child(document, "schemaVersion")
    if isinstance(document, dict) and not (type(version) is int and version in (1, 2)):
        yield Fault(("schemaVersion",), "must be 1 or 2" if "schemaVersion" in document else "is required: 1 or 2")


def uniqueness_faults(document: Any) -> Iterator[Fault]:
    """Ids that stand twice among their siblings, and criteria of composites that claim a severity of their own."""
    yield from _repeated(document, "assertions", ())
    yield from _repeated(document, "scenarios", ())
    for number, scenario in _numbered(child(document, "scenarios")):
        place: Path = ("scenarios", number)
        yield from _repeated(scenario, "assertions", place)
        yield from _repeated(scenario, "steps", place)
        for index, step in _numbered(child(scenario, "steps")):
            yield from _repeated(step, "variants", (*place, "steps", index))
            yield from _repeated(step, "assertions", (*place, "steps", index))


def assertion_faults(criteria: Any) -> Iterator[Fault]:
    """As `uniqueness_faults`, of one list of criteria that stands alone."""
    for fault in _repeated({"assertions": criteria}, "assertions", ()):
        yield Fault(fault.path[1:], fault.message, fault.hint, fault.at_key)


def _repeated(owner: Any, key: str, place: Path) -> Iterator[Fault]:
    """Repeated ids in the list under `key` of what stands at `place` and, for criteria, in the composites below it."""
    siblings: set[str] = set()
    for index, item in _numbered(child(owner, key)):
        identifier = child(item, "id")
        if isinstance(identifier, str):
            if identifier in siblings:
                yield Fault((*place, key, index, "id"), "stands twice among its siblings")
            siblings.add(identifier)
        if key == "assertions" and isinstance(item, dict) and not _NESTING.isdisjoint(cast("dict[str, Any]", item)):
            yield from _below(item, (*place, key, index))


def _below(criterion: Any, place: Path) -> Iterator[Fault]:
    inner = _numbered(child(criterion, "assertions"))
    nested: list[tuple[Any, Path]] = [(item, (*place, "assertions", index)) for index, item in inner]
    negated = child(criterion, "assertion")
    if isinstance(negated, dict):
        nested.append((cast("Any", negated), (*place, "assertion")))
        yield from _below(negated, (*place, "assertion"))
    for item, where in nested:
        if child(item, "severity") is not None:
            hint = "say it of the whole criterion"
            yield Fault((*where, "severity"), "means nothing inside another criterion", hint, at_key=True)
    yield from _repeated(criterion, "assertions", place)


def _fault(item: ErrorDetails, document: Any, version: int) -> Fault:
    path, kind = of_models(item["loc"]), item["type"]
    context = item.get("ctx", {})
    if kind == "criterion":
        path = (*path, context["key"])
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        path = (*path, "kind")
    if kind == "extra_forbidden":
        hint = _of_version_2(path, None, version) or nearest(path[-1], _keys(document, path[:-1], version))
        return Fault(path, "is not a known key here", hint, at_key=True)
    written = at(document, path)
    if kind in ("literal_error", "union_tag_invalid"):
        expected = str(context.get("expected") or context.get("expected_tags"))
        valid = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
        hint = _of_version_2(path, written, version) or nearest(written, valid)
        return Fault(path, f"must be {expected}", hint)
    message = "is required" if kind == "union_tag_not_found" else _RULES.get(kind) or _plain(item["msg"])
    return Fault(path, message)


def _plain(message: str) -> str:
    for noun in ("Input", "String", "List"):
        message = message.replace(f"{noun} should", "must")
    return message[:1].lower() + message[1:]


def _of_version_2(path: Path, written: Any, version: int) -> str | None:
    words = _ADDED.get(str(path[-1])) if version == 1 and path else None
    if words is None or (words and not (isinstance(written, str) and written in words)):
        return None
    return "schemaVersion: 2 has it"


def _keys(document: Any, path: Path, version: int) -> list[str]:
    """The keys that an object at `path` may have."""
    model: type[BaseModel] | None = schema.Suite2
    if path:
        owner = path[-1] if isinstance(path[-1], str) else path[-2] if len(path) > 1 else "assertions"
        if owner in ("assertion", "assertions"):
            model = _KINDS[version].get(str(at(document, (*path, "kind"))))
        else:
            model = _MODELS.get(str(owner))
    return [] if model is None else [str(field.alias or name) for name, field in model.model_fields.items()]


def _numbered(value: Any) -> Iterator[tuple[int, Any]]:
    return enumerate(cast("list[Any]", value) if isinstance(value, list) else ())
