"""What labelled examples say of the judges of a plan: read from the file that an experiment names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evalfleet.errors import Problem
from evalfleet.grading.judge_prompts import RECIPE_VERSIONS
from evalfleet.model.calibration import Calibration
from evalfleet.model.judge import JudgeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeUse:
    """One judge of a plan and how many of its evals ask it. `uncalibrated` says why no calibration speaks of it."""

    judge: JudgeConfig
    evals: int
    calibration: Calibration | None
    uncalibrated: str | None

    def as_json(self) -> dict[str, Any]:
        """As a run records it."""
        agreements: Any = None if self.calibration is None else self.calibration.model_dump(mode="json")["recipes"]
        return {**self.judge.identity(), "evals": self.evals, "recipes": agreements, "uncalibrated": self.uncalibrated}


def judge_uses(judges: Iterable[JudgeConfig], folder: Path) -> tuple[tuple[JudgeUse, ...], list[Problem]]:
    """The distinct judges with their calibrations; and what is wrong with those files, named below `folder`."""
    problems: list[Problem] = []
    uses: list[JudgeUse] = []
    for judge, evals in Counter(judges).items():
        calibration, why = None, "no labelled examples were judged"
        if judge.calibration is not None:
            found = _read(folder / judge.calibration)
            if isinstance(found, Problem):
                problems.append(found)
            else:
                calibration, why = (found, None) if (why := _not_of(found, judge)) is None else (None, why)
        uses.append(JudgeUse(judge=judge, evals=evals, calibration=calibration, uncalibrated=why))
    return tuple(uses), problems


def _not_of(found: Calibration, judge: JudgeConfig) -> str | None:
    """Why a calibration does not speak of this judge as it is asked now."""
    if not found.is_of(judge):
        return "its calibration is of another model, or of other parameters"
    old: Mapping[str, int] = {name: each.version for name, each in found.recipes.items()}
    changed = [name for name, version in old.items() if version != RECIPE_VERSIONS[name]]
    return f"its calibration is of older words of {', '.join(changed)}" if changed else None


def _read(path: Path) -> Calibration | Problem:
    hint = "orchestrate judge calibrate LABELS --output writes one"
    try:
        return Calibration.model_validate_json(path.read_bytes())
    except OSError as error:
        return Problem("INVALID_CALIBRATION", error.strerror or "can't be read", str(path), hint=hint)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        message = f"is no calibration of a judge: {'.'.join(map(str, first['loc']))} {first['msg']}"
        return Problem("INVALID_CALIBRATION", message, str(path), hint=hint)
