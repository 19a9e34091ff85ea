"""What any process needs to take part in a run, as plain data that travels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalfleet.model.experiment import Experiment
from evalfleet.model.judge import JudgeConfig
from evalfleet.model.sandbox import KeepSandbox
from evalfleet.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBlueprint:
    """One run as a worker or coordinator is built from it. No secret is in it, only names of secrets.

    `experiment_file` and `project` are absolute; `snapshot` is the experiment as JSON, `arms` the planned arms' names,
    `sandboxed` of those whose attempts have a sandbox, `unseen` of those whose model calls can't be seen, `cases` how
    many cases were planned; `files` maps definition ids to files relative to the project. `embedded` says that the
    record store is the embedded server. `memory` bounds an attempt in a process of its own, in bytes. `judges` holds
    the judge of each definition that asks one; `judges_away` says of those whose judge did not answer before the run
    began what it said instead. `backends` names those of its sandboxes, `default_backend` the one of sandboxes that
    name none. `conversations` says that there are scenarios of several steps, which may be continued.
    """

    run: str
    run_key: int
    project: str
    experiment_file: str
    snapshot: Mapping[str, Any]
    arms: tuple[str, ...]
    sandboxed: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    cases: int
    files: Mapping[str, str]
    database_url: str
    embedded: bool
    artifacts: str
    state_dir: str
    failpoint: str | None
    debugging: bool = False
    memory: int | None = None
    judges: Mapping[str, JudgeConfig] = field(default_factory=dict[str, JudgeConfig])
    judges_away: Mapping[str, str] = field(default_factory=dict[str, str])
    backends: tuple[str, ...] = ()
    default_backend: str | None = None
    conversations: bool = False
    keep_sandbox: KeepSandbox = KeepSandbox.NONE

    @property
    def experiment(self) -> Experiment:
        return Experiment.from_snapshot(self.snapshot)

    @property
    def settings(self) -> Settings:
        """The settings of the process that planned the run, with the store it uses."""
        return Settings(
            state_dir=Path(self.state_dir),
            artifacts=self.artifacts,
            database_url=self.database_url,
            failpoint=self.failpoint,
        )
