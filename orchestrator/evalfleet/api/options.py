"""What callers may ask for when they run, resume, read or delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from evalfleet.model.sandbox import KeepSandbox
from evalfleet.model.verdict import CaseStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How an experiment is narrowed and changed before it is planned.

    `overrides` are dotted fields to values as written (`limits.concurrency` to `8`); `arms` keeps these arms.
    """

    overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    arms: tuple[str, ...] = ()
    reuse: bool = False
    allow_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """How a run is started. `address` names a Ray cluster; `inline` runs without Ray, in this process.

    `resume_unfinished` continues an unfinished run of the same digest; `idempotency_key` makes a repeated request
    return the run that the first one made. `keep_sandbox` says whose sandboxes stay when their attempt has ended.
    `confirmed` begins a run whatever it may cost.
    `affected_by` names a run: only the evals of its failed and errored cases run, and nothing of them is carried; with
    `apart_from` all others do. `retry` reopens cases of these statuses of the run that `resume_unfinished` finds.
    """

    overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    arms: tuple[str, ...] = ()
    reuse: bool = False
    allow_empty: bool = False
    address: str | None = None
    inline: bool = False
    resume_unfinished: bool = False
    retry: tuple[CaseStatus, ...] = ()
    workers: int | None = None
    lanes: int | None = None
    idempotency_key: str | None = None
    confirmed: bool = False
    affected_by: str | None = None
    apart_from: str | None = None
    keep_sandbox: KeepSandbox = KeepSandbox.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions:
    """How a run goes on. `retry` reopens cases of these statuses; `steal` takes a run from a live coordinator.

    `project` is where the project lies now, when it is not where it was planned. `keep_sandbox` is of what runs from
    here on: how the run was started says nothing of it.
    """

    project: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    retry: tuple[CaseStatus, ...] = ()
    steal: bool = False
    address: str | None = None
    inline: bool = False
    workers: int | None = None
    lanes: int | None = None
    keep_sandbox: KeepSandbox = KeepSandbox.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoreOptions:
    """How a run is judged again. `evals` is the project whose evals judge it, when it is not the run's own.

    `only_unavailable` judges only what a judge, a grader or missing evidence kept from a verdict; `reason` is recorded.
    """

    evals: Path | None = None
    only_unavailable: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapOptions:
    """Which sandboxes are removed beside orphans: `kept` ones, and with `force` also unverified ones."""

    kept: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """What happens to runs that carry results from the deleted one; refused when neither is asked for."""

    with_dependants: bool = False
    copy_evidence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRun:
    """A run of packs without an experiment file. `agent` is `module:name` in Python, or an arm's settings as JSON.

    `packs` are beginnings of ids of evals: of packs, or of their assignments; none means all packs of the project.
    """

    agent: str
    packs: tuple[str, ...] = ()
    model: str | None = None
    repetitions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """Which cases; unset fields don't narrow. `prefix` is of the eval id, `ordinal` the case's number."""

    ordinal: int | None = None
    arm: str | None = None
    prefix: str | None = None
    tag: str | None = None
    statuses: tuple[CaseStatus, ...] = ()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class SideChoice:
    """A side of a comparison: a run by the beginning of its id, one of its arms or all, a grading or the current."""

    run: str
    arm: str | None = None
    grading: int | None = None

    @classmethod
    def parsed(cls, text: str) -> Self:
        """`RUN` or `RUN:ARM` as a choice."""
        run, _, arm = text.partition(":")
        return cls(run, arm or None)
