"""Evals that are declared: the scenarios of `*.suite.yaml` and `*.suite.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.definition import EvalDefinition, SourcePlace
from evalfleet.model.suite import DeclaredScenario, Scenario, Suite
from evalfleet.planning.evaluator_files import evaluators_beside
from evalfleet.planning.suite_file import read_suite
from evalfleet.suites.registry import asks_judge

_SUFFIXES = (".suite.yaml", ".suite.yml", ".suite.json")


class SuiteFiles:
    """Suites name themselves: a scenario's Eval is called `<suite id>/<scenario id>`, wherever the file lies."""

    owns_folder = False

    def claims(self, path: PurePosixPath) -> bool:
        return path.name.endswith(_SUFFIXES)

    def path_id(self, path: PurePosixPath) -> str | None:
        return None

    def load(self, project: Path, file: Path) -> Iterator[EvalDefinition | Problem]:
        try:
            suite = _suite_in(file)
            evaluators = evaluators_beside(file, project / "evals")
        except DefinitionError as error:
            yield from error.problems
            return
        _INDEXES[file] = known = _Index.of(suite, evaluators)
        for scenario in suite.scenarios:
            yield known.definition(scenario, file)

    def find(self, project: Path, file: Path, definition_id: str) -> Iterator[EvalDefinition | Problem]:
        """As `load`, of one definition: a worker asks for each scenario of a suite that may have thousands."""
        try:
            suite = _suite_in(file)
            known = _INDEXES.get(file)
            if known is None or known.suite is not suite:
                known = _INDEXES[file] = _Index.of(suite, evaluators_beside(file, project / "evals"))
            scenario = known.scenarios.get(definition_id.removeprefix(f"{suite.id}/"))
            if scenario is not None:
                yield known.definition(scenario, file)
        except DefinitionError as error:
            yield from error.problems


def _suite_in(file: Path) -> Suite:
    status = file.stat()
    return _read(file, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _read(file: Path, modified: int, size: int) -> Suite:
    """The suite in `file` as it was when it was last written."""
    return read_suite(file)


@dataclass(frozen=True, slots=True)
class _Index:
    """A suite as it was read, its scenarios by id, what they can call, and the definitions that were asked for."""

    suite: Suite
    scenarios: Mapping[str, Scenario]
    evaluators: Mapping[str, Callable[..., Any]]
    definitions: dict[str, EvalDefinition] = field(default_factory=dict[str, EvalDefinition])

    @classmethod
    def of(cls, suite: Suite, evaluators: Mapping[str, Callable[..., Any]]) -> _Index:
        return cls(suite, {scenario.id: scenario for scenario in suite.scenarios}, evaluators)

    def definition(self, scenario: Scenario, file: Path) -> EvalDefinition:
        found = self.definitions.get(scenario.id)
        if found is None:
            found = self.definitions[scenario.id] = _definition(self.suite, scenario, self.evaluators, file)
        return found


#: Of suites that were looked into, by file; one is good while the suite is what the file holds.
_INDEXES: dict[Path, _Index] = {}


def _definition(
    suite: Suite, scenario: Scenario, evaluators: Mapping[str, Callable[..., Any]], file: Path
) -> EvalDefinition:
    return EvalDefinition(
        id=f"{suite.id}/{scenario.id}",
        body=DeclaredScenario(suite=suite, scenario=scenario, evaluators=evaluators),
        description=scenario.description or scenario.name,
        tags=scenario.tags,
        external=scenario.external,
        skip_reason=scenario.skip_reason,
        allow_no_assertions=True,
        judge=asks_judge(scenario),
        metadata=scenario.metadata,
        place=SourcePlace(file=file, line=1),
    )
