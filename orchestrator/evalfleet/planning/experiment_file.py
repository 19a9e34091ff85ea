"""Loads `experiment.yaml`: everything wrong is reported together, each thing with its place and a way out."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from evalfleet.errors import ConfigurationError, DefinitionError, Problem
from evalfleet.model.experiment import Arm, Experiment
from evalfleet.model.model_call import rate_name
from evalfleet.planning import finite, yaml_source
from evalfleet.planning.arms import ArmPlan, MatrixError, check_matrix, planned_arms
from evalfleet.planning.budgets import budget_problems
from evalfleet.planning.supported import OVERRIDABLE, drop_unsupported
from evalfleet.planning.typed import Typed, field_names, nearest, type_at
from evalfleet.planning.yaml_nodes import place_after
from evalfleet.planning.yaml_source import Source
from evalfleet.ports import AdapterFactory, shows_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedExperiment:
    """A valid experiment, the file it came from, its arms with their validated adapter options."""

    experiment: Experiment
    path: Path
    source: Source
    arms: tuple[ArmPlan, ...]
    options: Mapping[str, BaseModel]

    def problem(self, code: str, message: str, path: yaml_source.Path, hint: str | None = None) -> Problem:
        """A Problem at a place of the experiment file."""
        return self.source.problem(code, message, path, hint=hint)


def load_experiment(
    path: Path,
    overrides: Mapping[str, str],
    factories: Mapping[str, AdapterFactory],
    *,
    backends: Collection[str] | None = None,
) -> LoadedExperiment:
    """Read, type and validate one experiment.

    `overrides` are `--set` pairs, dotted path to YAML text. `backends` are the known sandbox backends; None
    checks none. Raises DefinitionError holding every problem of the file.
    """
    source = _with_overrides(yaml_source.read_yaml(_text(path), str(path)), overrides)
    if not isinstance(source.value, dict):
        problem = source.problem("INVALID_EXPERIMENT", "an experiment is a mapping of keys", ())
        raise DefinitionError("INVALID_EXPERIMENT", [problem])
    check = _Check(source, factories, backends)
    return check.loaded(path)


#: What to do about an experiment that a run recorded and that is not to be edited.
_RECORDED = "that is what the run recorded: use the version that planned it"


def restore_experiment(
    snapshot: Mapping[str, Any], path: Path, factories: Mapping[str, AdapterFactory]
) -> LoadedExperiment:
    """The loaded experiment that `snapshot` was taken of, for a worker or a resumed run; `path` says where its
    relative paths start. Raises DefinitionError when this installation can't load it any more."""
    source = Source(str(path), dict(snapshot), {})
    try:
        experiment = Experiment.from_snapshot(snapshot)
        arms = planned_arms(experiment)
        options = {arm.name: _options_of(factories[arm.settings.adapter], arm) for arm in arms}
    except ValidationError as error:
        problems = [replace(each, hint=each.hint or _RECORDED) for each in validation_problems(source, error)]
        raise DefinitionError("INVALID_SNAPSHOT", problems) from error
    except ConfigurationError as error:
        raise DefinitionError("INVALID_SNAPSHOT", [source.problem("BROKEN_ADAPTER", str(error), ())]) from error
    return LoadedExperiment(experiment=experiment, path=path, source=source, arms=arms, options=options)


def validation_problems(
    source: Source, error: ValidationError, prefix: yaml_source.Path = (), model: type[BaseModel] | None = None
) -> Iterator[Problem]:
    """One Problem per place from a pydantic error, below `prefix`; descriptions of `model` say what has which form."""
    seen: set[yaml_source.Path] = set()
    for item in error.errors(include_url=False, include_input=False):
        location = _location(source, (*prefix, *item["loc"]), missing=item["type"] == "missing")
        if location in seen:  # one place, several members of a union
            continue
        seen.add(location)
        message = item["msg"].removeprefix("Value error, ")
        code = "MISSING_KEY" if item["type"] == "missing" else "INVALID_VALUE"
        if code == "MISSING_KEY":
            message = "is required"
        hint = None
        if item["type"] == "finite_number":
            message, hint = finite.REFUSAL, finite.HINT
        if item["type"] == "string_pattern_mismatch":
            field = None if model is None else model.model_fields.get(str(item["loc"][0]))
            message, hint = "has the wrong form", None if field is None else field.description
        at_key = "[key]" in item["loc"]
        yield source.problem(code, message[:1].lower() + message[1:], location, hint=hint, at_key=at_key)


class _Check:
    """Collects the problems of one experiment document."""

    def __init__(
        self, source: Source, factories: Mapping[str, AdapterFactory], backends: Collection[str] | None
    ) -> None:
        self._source = source
        self._factories = factories
        self._backends = backends
        self._problems: list[Problem] = []

    def loaded(self, path: Path) -> LoadedExperiment:
        value, unsupported = drop_unsupported(self._source)
        self._problems.extend(unsupported)
        typed = Typed(self._source)
        data = cast("dict[str, Any]", typed.model(value, Experiment, ()))
        self._problems.extend(typed.problems)
        self._type_options(value, data)
        experiment = self._experiment(data)
        arms = self._arms(experiment) if experiment is not None else ()
        options = {arm.name: options for arm in arms if (options := self._options(arm)) is not None}
        self._check_names(data, {arm.name for arm in arms})
        self._check_rates(experiment, arms)
        self._problems += budget_problems(self._source, experiment, arms, options, self._shows_calls)
        if experiment is None or self._problems:
            raise self._error()
        return LoadedExperiment(experiment=experiment, path=path, source=self._source, arms=arms, options=options)

    def _error(self) -> DefinitionError:
        ordered = sorted(
            self._problems, key=lambda problem: (problem.file or "", problem.line or 0, problem.column or 0)
        )
        return DefinitionError("INVALID_EXPERIMENT", ordered)

    def _experiment(self, data: dict[str, Any]) -> Experiment | None:
        try:
            return Experiment.model_validate_json(json.dumps(data))
        except ValidationError as error:
            self._problems.extend(validation_problems(self._source, error))
            return None

    def _factory(self, arm: str, adapter: str) -> AdapterFactory | None:
        place = ("arms", arm, "adapter")
        if adapter not in self._factories:
            message = f"no adapter is named {adapter!r}"
            self._add("UNKNOWN_ADAPTER", message, place, hint=nearest(adapter, list(self._factories)))
            return None
        try:
            return self._factories[adapter]
        except ConfigurationError as error:
            self._add("BROKEN_ADAPTER", str(error), place)
            return None

    def _type_options(self, value: dict[str, Any], data: dict[str, Any]) -> None:
        """Give the adapter's own keys of each arm, and the values of the matrix, the types that are declared."""
        used: list[AdapterFactory] = []
        for name, arm in _mapping(value, "arms").items():
            adapter = _mapping(arm).get("adapter")
            if isinstance(adapter, str) and (factory := self._factory(name, adapter)) is not None:
                used.append(factory)
                extras = {key: item for key, item in _mapping(arm).items() if key not in field_names(Arm)}
                options = self._typed_options(name, extras, factory)
                kept = {key: item for key, item in _mapping(data, "arms", name).items() if key not in extras}
                data["arms"][name] = kept | options
        for path, values in _mapping(value, "matrix").items():
            if isinstance(values, list):
                data["matrix"][path] = Typed(self._source).read(values, _matrix_type(path, used), ("matrix", path))

    def _typed_options(self, arm: str, extras: dict[str, Any], factory: AdapterFactory) -> dict[str, Any]:
        valid = {*field_names(Arm), *field_names(factory.options)}
        closed = factory.options.model_config.get("extra") != "allow"
        unknown = [key for key in extras if closed and key not in valid]
        for key in unknown:
            message = f"{key!r} is not a key of an arm, nor an option of the adapter {factory.name!r}"
            problem = self._source.problem(
                "UNKNOWN_KEY", message, ("arms", arm, key), hint=nearest(key, valid), at_key=True
            )
            self._problems.append(problem)
        typed = Typed(self._source)
        known = {key: item for key, item in extras.items() if key not in unknown}
        options: dict[str, Any] = typed.model(known, factory.options, ("arms", arm))
        self._problems.extend(typed.problems)
        self._check_options(arm, options, factory)
        return options

    def _check_options(self, arm: str, options: dict[str, Any], factory: AdapterFactory) -> None:
        try:
            place = finite.not_finite(factory.options.model_validate_json(json.dumps(options)))
        except ValidationError as error:
            self._problems.extend(validation_problems(self._source, error, ("arms", arm), factory.options))
            return
        if place is not None:  # unlike the experiment's own models, an adapter's may let them pass
            self._add("INVALID_VALUE", finite.REFUSAL, ("arms", arm, *place), hint=finite.HINT)

    def _arms(self, experiment: Experiment) -> tuple[ArmPlan, ...]:
        broken = list(check_matrix(experiment.matrix))
        try:
            arms = () if broken else planned_arms(experiment)
        except MatrixError as error:
            broken, arms = [error], ()
        except ValidationError as error:
            self._add("INVALID_VALUE", f"a value does not fit: {error.errors()[0]['msg']}", ("matrix",))
            arms = ()
        for error in broken:
            self._add("INVALID_MATRIX", str(error), error.path)
        return arms

    def _options(self, arm: ArmPlan) -> BaseModel | None:
        """The arm's options; None when they are wrong, which is reported here only for what the matrix did."""
        try:
            options = _options_of(self._factories[arm.settings.adapter], arm)
            place, fault = finite.not_finite(options), finite.REFUSAL
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            options, place, fault = None, first["loc"], first["msg"]
        except (ConfigurationError, KeyError):
            return None  # an unknown or broken adapter was reported at its arm
        if place is None:
            return options
        if arm.varied:
            message = f"gives the arm {arm.name!r} a wrong option {yaml_source.dotted(place)}: {fault}"
            self._add("INVALID_MATRIX", message, ("matrix",))
        return None

    def _check_names(self, data: Any, planned: set[str]) -> None:
        """Names that point at arms and backends. Works on what was written, so that other mistakes don't hide these."""
        known = planned or set(_mapping(data, "arms"))
        if planned or not data.get("matrix"):
            for name in _mapping(data, "limits", "per_arm"):
                self._check_arm(name, ("limits", "per_arm", name), known)
            for name in _mapping(data, "budget", "arms"):
                self._check_arm(name, ("budget", "arms", name), known)
            accepted: Any = _mapping(data, "accept").get("arms")
            for index, name in enumerate(cast("list[Any]", accepted) if isinstance(accepted, list) else []):
                self._check_arm(name, ("accept", "arms", index), known)
        layers: list[yaml_source.Path] = [("sandbox",)]
        layers += [("arms", name, "sandbox") for name in _mapping(data, "arms")]
        for place in layers:
            backend: Any = _mapping(data, *place).get("backend")
            if isinstance(backend, str) and self._backends is not None and backend not in self._backends:
                hint = nearest(backend, self._backends)
                self._add("UNKNOWN_BACKEND", f"no sandbox backend is named {backend!r}", (*place, "backend"), hint=hint)

    def _shows_calls(self, adapter: str, options: BaseModel | None) -> bool:
        return adapter in self._factories and options is not None and shows_calls(self._factories[adapter], options)

    def _check_rates(self, experiment: Experiment | None, arms: tuple[ArmPlan, ...]) -> None:
        """Each rate is that of an arm's account, or of the judge's."""
        if experiment is None or not arms:
            return
        known = {rate_name(arm.settings.adapter, arm.settings.model) for arm in arms}
        if experiment.judge is not None and experiment.judge.model is not None:
            known.add(rate_name("openai", experiment.judge.model))
        for name in experiment.rate:
            if name not in known:
                message = f"no arm and no judge has calls of {name!r}"
                hint = nearest(name, known)
                self._problems.append(
                    self._source.problem("UNKNOWN_ARM", message, ("rate", name), hint=hint, at_key=True)
                )
        if experiment.rate and experiment.isolation == "process":
            message = "a rate is not kept by attempts in processes of their own"
            hint = "leave out `rate` or `isolation: process`"
            self._problems.append(self._source.problem("NOT_SUPPORTED", message, ("rate",), hint=hint, at_key=True))

    def _check_arm(self, name: Any, place: yaml_source.Path, known: set[str]) -> None:
        if isinstance(name, str) and name not in known:
            hint, at_key = nearest(name, known), place[-1] == name
            message = f"no arm is named {name!r}"
            self._problems.append(self._source.problem("UNKNOWN_ARM", message, place, hint=hint, at_key=at_key))

    def _add(self, code: str, message: str, path: yaml_source.Path, hint: str | None = None) -> None:
        self._problems.append(self._source.problem(code, message, path, hint=hint))


def _mapping(value: Any, *path: str | int) -> dict[str, Any]:
    """The mapping at `path`, empty when there is none."""
    for part in path:
        value = cast("dict[Any, Any]", value).get(part) if isinstance(value, dict) else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _options_of(factory: AdapterFactory, arm: ArmPlan) -> BaseModel:
    return factory.options.model_validate_json(json.dumps(dict(arm.settings.options)))


def _matrix_type(path: str, used: list[AdapterFactory]) -> Any:
    """A list of what the arm, or the first used adapter that knows the option, declares at `path`."""
    parts = path.split(".")
    models = (Arm, *(factory.options for factory in used))
    return next((list[found] for model in models if (found := type_at(model, parts)) is not None), list[Any])


def _location(source: Source, loc: tuple[str | int, ...], *, missing: bool) -> yaml_source.Path:
    """The document path of a pydantic location, without the parts that name union members and validators."""
    path: yaml_source.Path = ()
    value: Any = source.value
    for index, part in enumerate(loc):
        if part in _parts(value):
            path, value = (*path, part), value[part]
        elif missing and index == len(loc) - 1:
            path = (*path, part)
    return path


def _parts(value: Any) -> Container[str | int]:
    """What a place directly below a value may be called."""
    if isinstance(value, dict):
        return cast("dict[str | int, Any]", value)
    return range(len(cast("list[Any]", value))) if isinstance(value, list) else ()


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        problem = Problem("EXPERIMENT_NOT_FOUND", "there is no such file", str(path))
    except OSError as error:
        problem = Problem("EXPERIMENT_NOT_READABLE", error.strerror or "can't be read", str(path))
    except UnicodeDecodeError as error:
        message = f"not UTF-8 at byte {error.start}: save the file as UTF-8"
        place = place_after(error.object[: error.start].decode("utf-8-sig"))
        problem = Problem("INVALID_YAML", message, str(path), *place)
    raise DefinitionError(problem.code, [problem])


def _refused_override(key: str, top: str) -> Problem:
    allowed = [".".join(entry) for entry in OVERRIDABLE]
    known = field_names(Experiment)
    if top not in known:
        return Problem("INVALID_OVERRIDE", "there is no such field", "--set", field=key, hint=nearest(top, known))
    message = "--set may not change this: the experiment decides it"
    return Problem("INVALID_OVERRIDE", message, "--set", field=key, hint=f"may be set: {', '.join(allowed)}")


def _with_overrides(source: Source, overrides: Mapping[str, str]) -> Source:
    """The document with `--set` values in place. Raises DefinitionError for a path that may not be set."""
    problems: list[Problem] = []
    value: Any = source.value
    paths: set[yaml_source.Path] = set()
    for key, text in overrides.items():
        path = _override_path(key)
        if any(path[: len(allowed)] == allowed for allowed in OVERRIDABLE):
            value = _placed(value, path, yaml_source.read_yaml(text, f"--set {key}").value)
            paths.add(path)
            continue
        problems.append(_refused_override(key, path[0]))
    if problems:
        raise DefinitionError("INVALID_OVERRIDE", problems)
    return Source(source.file, value, source.places, frozenset(paths))


def _override_path(key: str) -> tuple[str, ...]:
    """Where a `--set` key points. The name of a rate may hold dots, as models' names do."""
    top, _, rest = key.partition(".")
    name, _, last = rest.rpartition(".")
    return (top, name, last) if top == "rate" and name else tuple(key.split("."))


def _placed(value: Any, path: tuple[str, ...], leaf: Any) -> Any:
    if not path:
        return leaf
    outer = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return {**outer, path[0]: _placed(outer.get(path[0]), path[1:], leaf)}
