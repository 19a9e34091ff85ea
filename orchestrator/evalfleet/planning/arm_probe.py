"""Finds out about arms what only their adapter and the outside know: who the agent is, where it lives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evalfleet.errors import ConfigurationError, Problem
from evalfleet.planning.arms import ArmPlan
from evalfleet.planning.experiment_file import LoadedExperiment
from evalfleet.planning.fingerprint import AgentPrint, FingerprintParts, arm_parts
from evalfleet.planning.lock import Commands
from evalfleet.planning.sources import Sources
from evalfleet.planning.typed import nearest
from evalfleet.ports import AdapterFactory, ArmSettings

_COMMAND = re.compile(r"\$\((.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedArm:
    """One arm of a plan. `sandboxed` says that its agent lives in the attempt's sandbox."""

    plan: ArmPlan
    settings: ArmSettings
    sandboxed: bool
    agent: AgentPrint
    parts: FingerprintParts

    @property
    def name(self) -> str:
        return self.plan.name


def arm_settings(loaded: LoadedExperiment, arm: ArmPlan, project: Path) -> ArmSettings:
    """The arm as its adapter's factory takes it."""
    return ArmSettings(
        name=arm.name,
        model=arm.settings.model,
        flags=arm.settings.flags,
        options=loaded.options[arm.name],
        project=project,
    )


class ArmProbe:
    """Asks each arm's factory, without calling the agent."""

    def __init__(
        self, loaded: LoadedExperiment, factories: Mapping[str, AdapterFactory], commands: Commands, sources: Sources
    ) -> None:
        self._loaded = loaded
        self._factories = factories
        self._commands = commands
        self._sources = sources
        self._targets: dict[str, str] = {}

    async def arms(self, wanted: tuple[str, ...]) -> tuple[tuple[PlannedArm, ...], list[Problem]]:
        """The wanted arms, all when none is named, in experiment order; and what is wrong with them."""
        known = {arm.name for arm in self._loaded.arms} | {arm.base for arm in self._loaded.arms}
        problems = [
            Problem("UNKNOWN_ARM", f"no arm is named {name!r}", field="arm", hint=nearest(name, known))
            for name in wanted
            if name not in known
        ]
        planned: list[PlannedArm] = []
        for arm in self._loaded.arms:
            if not wanted or {arm.name, arm.base} & set(wanted):
                try:
                    planned.append(await self._planned(arm))
                except ConfigurationError as error:
                    # Adapters say which field is wrong in full; the problem names the place once.
                    message = str(error).removeprefix(f"arms.{arm.base}.").removeprefix(f"arms.{arm.name}.")
                    problems.append(self._loaded.problem("INVALID_ARM", message, ("arms", arm.base)))
        return tuple(planned), problems

    async def _planned(self, arm: ArmPlan) -> PlannedArm:
        factory = self._factories[arm.settings.adapter]
        settings = arm_settings(self._loaded, arm, self._commands.folder)
        identity = factory.identify(settings)
        adapter = factory.build(settings)
        sandboxed = adapter.sandboxed
        await adapter.close()
        sources = self._sources.closure(identity.sources)
        agent = AgentPrint(identity=identity, sources=sources, target=await self._target(arm))
        return PlannedArm(plan=arm, settings=settings, sandboxed=sandboxed, agent=agent, parts=arm_parts(arm, agent))

    async def _target(self, arm: ArmPlan) -> str | None:
        """The target's fingerprint: a text as it stands, or what its command prints; one command runs once."""
        text = arm.settings.target.fingerprint
        match = _COMMAND.fullmatch(text) if text else None
        if text is None or match is None:
            return text
        if text not in self._targets:
            self._targets[text] = await self._commands.output(match[1])
        return self._targets[text]
