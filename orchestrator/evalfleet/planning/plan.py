"""Ties planning together: a loaded experiment and a catalog become a frozen Plan, or one list of problems."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.canonical import digest
from evalfleet.model.case import Case
from evalfleet.model.definition import EvalDefinition, SandboxSpec
from evalfleet.model.experiment import Experiment, JudgeLayer
from evalfleet.model.judge import JudgeConfig
from evalfleet.model.sandbox import DefaultBackend
from evalfleet.model.suite import DeclaredScenario, Suite
from evalfleet.model.verdict import Style
from evalfleet.planning.arm_probe import ArmProbe, PlannedArm
from evalfleet.planning.calibrations import JudgeUse, judge_uses
from evalfleet.planning.criteria import CriteriaFault, criteria_files, leaks
from evalfleet.planning.definition_digests import definition_digests
from evalfleet.planning.discover import Catalog
from evalfleet.planning.expand import ArmIdentity, excess, expand, row_digest
from evalfleet.planning.experiment_file import LoadedExperiment
from evalfleet.planning.fingerprint import FingerprintParts, eval_parts, sandbox_parts, scenario_digest
from evalfleet.planning.judge_plan import resolve_judge
from evalfleet.planning.lock import Commands, project_lock
from evalfleet.planning.reuse import Action, History, reuse
from evalfleet.planning.sandbox_plan import SandboxFault, names_no_backend, resolve_sandbox
from evalfleet.planning.select import Narrowing, Selector
from evalfleet.planning.selected import DatasetRecord, Scan, SelectedEvals, scan
from evalfleet.planning.sources import Sources, source_roots
from evalfleet.planning.suite_selection import select_scenarios
from evalfleet.planning.typed import nearest
from evalfleet.ports import AdapterFactory
from evalfleet.sandbox_ports import Spawner
from evalfleet.suites.registry import preflight, scenario_evaluators
from evalfleet.suites.selection import unknown_tags


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTools:
    """What planning reaches the outside with. `env` is the environment of commands it runs.

    `kept_bytes` of dataset rows stay in memory as long as the plan; the rest waits in a temporary file.
    `default_backend` is asked once, and only if there is a sandbox for which nobody names a backend.
    """

    factories: Mapping[str, AdapterFactory]
    spawner: Spawner
    env: Mapping[str, str]
    kept_bytes: int = 64 << 20
    judge: JudgeLayer = field(default_factory=JudgeLayer)
    default_backend: Callable[[], Awaitable[DefaultBackend]] | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The frozen denominator of a run, and all that a run records about where it came from.

    `sandboxes` holds the resolved sandbox by arm name and definition id (None for a direct agent), `judges` the judge
    of each definition that asks one; `default_backend` is None where all sandboxes name theirs; `digests` name
    each part of the definition, `digest` is over them; `lock` is JSON.
    """

    experiment: Experiment
    project: Path
    arms: tuple[PlannedArm, ...]
    style: Style
    definitions: Mapping[str, EvalDefinition]
    files: Mapping[str, Path]
    sandboxes: Mapping[tuple[str, str], SandboxSpec | None]
    datasets: tuple[DatasetRecord, ...]
    evals: SelectedEvals
    digests: Mapping[str, str]
    lock: Mapping[str, Any]
    eval_parts: Mapping[str, FingerprintParts]
    judges: Mapping[str, JudgeConfig]
    judge_uses: tuple[JudgeUse, ...]
    warnings: tuple[Problem, ...]
    sandbox_parts: Mapping[tuple[str, str], FingerprintParts]
    default_backend: DefaultBackend | None = None

    @cached_property
    def digest(self) -> str:
        """One digest over everything that a resumed run may not find changed."""
        return digest(dict(self.digests))

    @property
    def total(self) -> int:
        """How many Cases the plan holds."""
        return len(self.evals) * len(self.arms) * self.experiment.repetitions

    @property
    def per_arm(self) -> int:
        """How many Cases each arm has."""
        return len(self.evals) * self.experiment.repetitions

    @property
    def has_conversations(self) -> bool:
        """Whether there are scenarios of more than one step."""
        bodies = (definition.body for definition in self.definitions.values())
        return any(isinstance(body, DeclaredScenario) and len(body.scenario.steps) > 1 for body in bodies)

    @property
    def suites(self) -> tuple[Suite, ...]:
        """The suites that any of the Cases come from."""
        bodies = [each.body for each in self.definitions.values() if isinstance(each.body, DeclaredScenario)]
        return tuple({body.suite.id: body.suite for body in bodies}.values())

    def cases(self) -> Iterator[Case]:
        """Every Case in planned order, one at a time; each call gives the same."""
        return expand(self._identities, self.evals, self.experiment.repetitions)

    def actions(self, history: History, cases: Iterable[Case] | None = None) -> Iterator[Action]:
        """What happens to each Case, given what earlier runs settled."""
        unprintable = {arm.name: arm.agent.missing for arm in self.arms if arm.agent.missing is not None}
        return reuse(
            self.cases() if cases is None else cases,
            history,
            self.parts,
            allow_external=self.experiment.writes.allow_external,
            unprintable=unprintable,
            skips={one.id: one.skip_reason for one in self.definitions.values() if one.skip_reason is not None},
        )

    def parts(self, case: Case) -> FingerprintParts:
        """The fingerprint parts of one Case, by field."""
        shared = self._arm_parts[case.arm].joined(self.eval_parts[case.definition])
        row = FingerprintParts({"row": row_digest(case.row, case.variants)})
        return shared.joined(self.sandbox_parts[case.arm, case.definition]).joined(row)

    @cached_property
    def _arm_parts(self) -> dict[str, FingerprintParts]:
        return {arm.name: arm.parts for arm in self.arms}

    @cached_property
    def _identities(self) -> tuple[ArmIdentity, ...]:
        def prints(arm: PlannedArm) -> dict[str, str] | None:
            if arm.agent.missing is not None:
                return None
            return {
                name: arm.parts.joined(parts).joined(self.sandbox_parts[arm.name, name]).digest()
                for name, parts in self.eval_parts.items()
            }

        return tuple(ArmIdentity(arm.name, prints(arm)) for arm in self.arms)


async def make_plan(
    loaded: LoadedExperiment,
    catalog: Catalog,
    tools: PlanTools,
    narrowing: Narrowing | None = None,
    *,
    allow_empty: bool = False,
) -> Plan:
    """Plan a run. Raises DefinitionError with every problem found; `NO_CASES` when nothing is selected."""
    planner = _Planner(loaded, catalog, tools, narrowing or Narrowing(), allow_empty=allow_empty)
    return await planner.plan()


class _Planner:
    def __init__(
        self,
        loaded: LoadedExperiment,
        catalog: Catalog,
        tools: PlanTools,
        narrowing: Narrowing,
        *,
        allow_empty: bool,
    ) -> None:
        self._loaded = loaded
        self._catalog = catalog
        self._narrowing = narrowing
        self._allow_empty = allow_empty
        self._kept_bytes = tools.kept_bytes
        self._default_judge = tools.judge
        self._choose_backend = tools.default_backend
        self._problems: list[Problem] = []
        self._commands = Commands(spawner=tools.spawner, env=tools.env, folder=catalog.project)
        self._sources = Sources(catalog.project, source_roots(catalog.project))
        self._probe = ArmProbe(loaded, tools.factories, self._commands, self._sources)

    async def plan(self) -> Plan:
        arms, problems = await self._probe.arms(self._narrowing.arms)
        self._problems += problems
        selector = Selector(self._loaded.experiment.evals, self._narrowing)
        project, loaded = self._catalog.project, self._loaded
        found = await asyncio.to_thread(self._scan, selector)
        self._problems += found.problems
        self._check_size(len(found.evals), len(arms))
        selected = found.evals.definitions()
        self._check_selection(selector, selected, found.evals)
        self._check_evaluators(selected)
        criteria = self._criteria(selected)
        default = await self._default_backend(arms, selected)
        sandboxes = self._sandboxes(arms, selected, criteria, default)
        judges = {name: judge for name, judge in map(self._judge, selected) if judge is not None}
        uses, problems = judge_uses(judges.values(), self._loaded.path.resolve().parent)
        self._problems += problems
        if self._problems:
            raise self._error()
        parts = {
            definition.id: self._eval_parts(definition, judges.get(definition.id), criteria[definition.id])
            for definition in selected
        }
        return Plan(
            experiment=self._loaded.experiment,
            project=project,
            arms=arms,
            style=selected[0].style if selected else Style.PASS,
            definitions={definition.id: definition for definition in selected},
            files={definition.id: self._catalog.files[definition.id] for definition in selected},
            sandboxes=sandboxes,
            datasets=found.datasets,
            evals=found.evals,
            digests=definition_digests(loaded.experiment, self._narrowing, arms, parts, found.datasets, default),
            lock=await project_lock(self._commands),
            eval_parts=parts,
            judges=judges,
            judge_uses=uses,
            warnings=self._warnings(selector),
            sandbox_parts={pair: self._sandbox_parts(spec) for pair, spec in sandboxes.items()},
            default_backend=default,
        )

    async def _default_backend(
        self, arms: tuple[PlannedArm, ...], selected: tuple[EvalDefinition, ...]
    ) -> DefaultBackend | None:
        """What sandboxes get for which nobody names a backend, None when there are none."""
        boxed = [arm.plan for arm in arms if arm.sandboxed]
        needed = any(names_no_backend(arm, definition) for arm in boxed for definition in selected)
        return await self._choose_backend() if needed and self._choose_backend is not None else None

    def _scan(self, selector: Selector) -> Scan:
        definitions, problems = select_scenarios(self._catalog.definitions, selector.selection)
        self._problems += [self._placed(problem) for problem in problems]
        return scan(
            definitions,
            selector,
            self._catalog.project,
            allow_empty=self._allow_empty,
            kept_bytes=self._kept_bytes,
        )

    def _placed(self, problem: Problem) -> Problem:
        """A problem of the experiment by its field, with the place of that field."""
        path = tuple(int(part) if part.isdecimal() else part for part in (problem.field or "").split("."))
        return self._loaded.problem(problem.code, problem.message, path, problem.hint)

    def _check_size(self, evals: int, arms: int) -> None:
        """Refuse at once what would take for ever to plan, at the largest of its factors."""
        experiment = self._loaded.experiment
        if (message := excess(evals, arms, experiment.repetitions)) is not None:
            sizes = {
                "repetitions": experiment.repetitions,
                "evals": evals,
                "matrix" if experiment.matrix else "arms": arms,
            }
            place = max(sizes, key=lambda name: sizes[name])
            hint = "lower repetitions, set evals.limit, or plan fewer arms"
            self._problems.append(self._loaded.problem("TOO_MANY_CASES", message, (place,), hint))
            raise self._error()

    def _check_selection(self, selector: Selector, selected: tuple[EvalDefinition, ...], evals: SelectedEvals) -> None:
        for where, index, prefix in selector.unmatched():
            message = f"no eval id begins with {prefix!r}"
            hint = nearest(prefix, [definition.id for definition in self._catalog.definitions])
            if where == "prefix":
                self._problems.append(Problem("UNKNOWN_PREFIX", message, field="prefix", hint=hint))
            else:
                self._problems.append(self._loaded.problem("UNKNOWN_PREFIX", message, ("evals", where, index), hint))
        for eval_id in selector.missing():
            hint = "an eval that failed is no longer there, or no longer selected"
            self._problems.append(Problem("UNKNOWN_EVAL", f"{eval_id!r} is not selected", field="affected", hint=hint))
        if not evals and not self._problems and not self._allow_empty:
            message = "no case is selected: no eval passes the selection"
            hint = "--allow-empty plans an empty run"
            self._problems.append(self._loaded.problem("NO_CASES", message, ("evals",), hint))
        styles = {style: [one.id for one in selected if one.style is style] for style in Style}
        if all(styles.values()):
            examples = f"{styles[Style.PASS][0]!r} is read as a verdict, {styles[Style.SCORE][0]!r} as a score"
            message = f"both styles of eval are selected, which have no common headline: {examples}"
            hint = "select one style an experiment"
            self._problems.append(self._loaded.problem("MIXED_STYLES", message, ("evals",), hint))

    def _warnings(self, selector: Selector) -> tuple[Problem, ...]:
        """What is legal and probably not meant."""
        selection, narrowing = selector.selection, selector.narrowing
        known = {tag for definition in self._catalog.definitions for tag in definition.tags}
        return tuple(unknown_tags(known, [*selection.tags, *selection.exclude_tags, *narrowing.tags]))

    def _check_evaluators(self, selected: tuple[EvalDefinition, ...]) -> None:
        """Every evaluator that a suite names has to exist, whatever scenario is the first to need it."""
        chosen: dict[str, list[EvalDefinition]] = {}
        for definition in selected:
            if isinstance(definition.body, DeclaredScenario):
                chosen.setdefault(definition.body.suite.id, []).append(definition)
        for definitions in chosen.values():
            bodies = [each.body for each in definitions if isinstance(each.body, DeclaredScenario)]
            try:
                preflight(bodies[0].suite, {body.scenario.id for body in bodies}, bodies[0].evaluators)
            except DefinitionError as error:
                file = str(self._catalog.files[definitions[0].id])
                self._problems += [replace(problem, file=file) for problem in error.problems]

    def _sandboxes(
        self,
        arms: tuple[PlannedArm, ...],
        selected: tuple[EvalDefinition, ...],
        criteria: Mapping[str, tuple[Path, ...]],
        default: DefaultBackend | None,
    ) -> dict[tuple[str, str], SandboxSpec | None]:
        result: dict[tuple[str, str], SandboxSpec | None] = {}
        folder = self._loaded.path.resolve().parent
        for arm in arms:
            for definition in selected:
                try:
                    boxed = arm.sandboxed
                    spec = resolve_sandbox(arm.plan, definition, sandboxed=boxed, folder=folder, default=default)
                except SandboxFault as fault:
                    self._problems.append(_at(definition, fault.code, str(fault)))
                    continue
                if spec is not None and spec.files is not None and not Path(spec.files).exists():
                    message = f"the sandbox's starting files {spec.files!r} don't exist"
                    self._problems.append(_at(definition, "SANDBOX_FILES_MISSING", message))
                if spec is not None and spec.build is not None and not (Path(spec.build) / "Dockerfile").is_file():
                    message = f"the folder {spec.build!r} to build an image from has no Dockerfile"
                    self._problems.append(_at(definition, "SANDBOX_BUILD_MISSING", message))
                if spec is not None:
                    hidden = [self._catalog.files[definition.id], *criteria.get(definition.id, ())]
                    hint = "move it out, or upload it after the last send"
                    self._problems += [_at(definition, "CRITERIA_VISIBLE", leak, hint) for leak in leaks(spec, hidden)]
                result[arm.name, definition.id] = spec
        return result

    def _criteria(self, selected: tuple[EvalDefinition, ...]) -> dict[str, tuple[Path, ...]]:
        """The files that each eval judges by."""
        found: dict[str, tuple[Path, ...]] = {}
        for definition in selected:
            try:
                folder = self._catalog.files[definition.id].parent
                found[definition.id] = criteria_files(folder, definition.criteria, self._catalog.project)
            except CriteriaFault as fault:
                self._problems.append(_at(definition, "INVALID_CRITERIA", str(fault)))
        return found

    def _judge(self, definition: EvalDefinition) -> tuple[str, JudgeConfig | None]:
        return definition.id, resolve_judge(definition, self._loaded.experiment, self._default_judge)

    def _eval_parts(
        self, definition: EvalDefinition, judge: JudgeConfig | None, criteria: tuple[Path, ...]
    ) -> FingerprintParts:
        sources = self._eval_sources(definition)
        fixture = self._sources.tree(definition.fixture) if definition.fixture is not None else {}
        return eval_parts(definition, sources, fixture, judge, self._sources.contents(criteria))

    def _eval_sources(self, definition: EvalDefinition) -> dict[str, str]:
        """What the eval is made of, by name: of a suite only the scenario itself, and the code that it calls."""
        if not isinstance(definition.body, DeclaredScenario):
            return self._sources.closure([self._catalog.files[definition.id]])
        known = definition.body.evaluators
        called = [known[name] for name in sorted(scenario_evaluators(definition.body.scenario)) if name in known]
        code = {Path(inspect.getfile(inspect.unwrap(function))) for function in called}
        return {**self._sources.closure(sorted(code)), definition.id: scenario_digest(definition.body)}

    def _sandbox_parts(self, spec: SandboxSpec | None) -> FingerprintParts:
        paths = (None, None) if spec is None else (spec.files, spec.build)
        files, build = ({} if path is None else self._sources.tree(Path(path)) for path in paths)
        return sandbox_parts(spec, files, build)

    def _error(self) -> DefinitionError:
        problems = list(dict.fromkeys(self._problems))
        return DefinitionError(problems[0].code if len(problems) == 1 else "INVALID_PLAN", problems)


def _at(definition: EvalDefinition, code: str, message: str, hint: str | None = None) -> Problem:
    place = definition.place
    return Problem(code, message, str(place.file) if place else None, place.line if place else None, hint=hint)
