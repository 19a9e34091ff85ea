from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evalfleet.model.report import ArmCounts, CaseView, RunAggregate, RunInfo
from evalfleet.model.verdict import CaseStatus, RunKind, RunStatus, Style
from evalfleet.reports.model import ReportModel, build_report


@pytest.fixture
def make_run() -> Callable[..., RunInfo]:
    def make(**fields: Any) -> RunInfo:
        values: dict[str, Any] = {
            "id": "7f3k2m0q1x",
            "kind": RunKind.SWEEP,
            "name": "checkout-sweep",
            "project": "shop",
            "status": RunStatus.COMPLETED,
            "total": 10,
            "created_at": 1_750_000_000.0,
            "started_at": 1_750_000_001.0,
            "finished_at": 1_750_000_193.0,
        }
        return RunInfo(**{**values, **fields})

    return make


@pytest.fixture
def make_arm() -> Callable[..., ArmCounts]:
    def make(arm: str = "small", *, style: Style = Style.PASS, planned: int = 10, **counts: Any) -> ArmCounts:
        return ArmCounts(arm=arm, style=style, planned=planned, **counts)

    return make


@pytest.fixture
def make_case() -> Callable[..., CaseView]:
    def make(**fields: Any) -> CaseView:
        values: dict[str, Any] = {
            "ordinal": 0,
            "arm": "small",
            "eval_id": "weather/brooklyn",
            "style": Style.PASS,
            "repetition": 0,
            "status": CaseStatus.PASSED,
        }
        return CaseView(**{**values, **fields})

    return make


@pytest.fixture
def make_report(make_run: Callable[..., RunInfo]) -> Callable[..., ReportModel]:
    def make(*arms: ArmCounts, notable: tuple[CaseView, ...] = (), **run: Any) -> ReportModel:
        return build_report(RunAggregate(run=make_run(**run), arms=arms), notable)

    return make
