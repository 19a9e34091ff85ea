"""Which judge an eval asks: each setting from the eval, the experiment or the environment; and how well it judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalfleet.api.judging import default_judge
from evalfleet.errors import AuthoringError
from evalfleet.model.calibration import Calibration, RecipeAgreement, calibrated_identity
from evalfleet.model.definition import EvalDefinition
from evalfleet.model.experiment import Experiment, JudgeLayer
from evalfleet.model.judge import JUDGE_KEY, JUDGE_URL, JudgeConfig, Reducer
from evalfleet.planning.calibrations import judge_uses
from evalfleet.planning.define import define_eval
from evalfleet.planning.judge_plan import resolve_judge
from evalfleet.settings import Settings

ENVIRONMENT = {
    "EVALFLEET_HOME": "/nowhere",
    "EVALFLEET_JUDGE_MODEL": "env-m",
    "EVALFLEET_JUDGE_BASE_URL": "http://env/v1/",
    "EVALFLEET_JUDGE_API_KEY_ENV": "ENV_KEY",
}


def experiment(**judge: Any) -> Experiment:
    given = {"judge": judge} if judge else {}
    return Experiment.from_snapshot({"schema_version": 1, "name": "s", "arms": {"a": {"adapter": "x"}}, **given})


def asks(judge: Any) -> EvalDefinition:
    return define_eval(judge=judge)(lambda t: None)


def resolved(judge: Any, said: Experiment, environment: dict[str, str]) -> JudgeConfig | None:
    settings = Settings.from_environment({"EVALFLEET_HOME": "/nowhere", **environment})
    return resolve_judge(asks(judge), said, default_judge(settings))


@pytest.mark.parametrize(
    ("judge", "said", "environment", "expected"),
    [
        (True, {}, {}, JudgeConfig()),
        (True, {}, ENVIRONMENT, JudgeConfig(model="env-m", base_url="http://env/v1", api_key_env="ENV_KEY")),
        (
            True,
            {"model": "exp-m"},
            ENVIRONMENT,
            JudgeConfig(model="exp-m", base_url="http://env/v1", api_key_env="ENV_KEY"),
        ),
        (
            {"model": "own-m", "votes": 3},
            {"model": "exp-m", "votes": 5, "reducer": "min", "timeout": "2m"},
            {},
            JudgeConfig(model="own-m", votes=3, reducer=Reducer.MIN, timeout=120.0),
        ),
        (True, {"base_url": "http://here/v1"}, {}, JudgeConfig(base_url="http://here/v1", api_key_env=None)),
        ({"cache": False}, {"cache": True, "allow_self": True}, {}, JudgeConfig(cache=False, allow_self=True)),
    ],
)
def test_each_setting_comes_from_the_nearest_that_says_it(
    judge: Any, said: dict[str, Any], environment: dict[str, str], expected: JudgeConfig
) -> None:
    assert resolved(judge, experiment(**said), environment) == expected


def test_without_a_declaration_there_is_no_judge() -> None:
    assert resolved(False, experiment(model="m"), ENVIRONMENT) is None
    assert (JudgeConfig().base_url, JudgeConfig().api_key_env) == (JUDGE_URL, JUDGE_KEY)


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        ({"modle": "m"}, "judge.modle is no setting of a judge: did you mean 'model'?"),
        ({"votes": 0}, "judge.votes Input should be greater than or equal to 1"),
        ({"votes": True}, "judge.votes"),
        ({"timeout": "soon"}, "judge.timeout is not a duration"),
        ({"model": object()}, "judge holds what is no setting"),
        (3, "judge is True or a mapping, not int"),
    ],
)
def test_an_eval_can_not_say_just_anything_of_its_judge(judge: Any, said: str) -> None:
    with pytest.raises(AuthoringError, match="judge") as raised:
        asks(judge)
    assert str(raised.value).startswith(said)


def calibration(config: JudgeConfig, **changes: Any) -> Calibration:
    confusion: Any = {"true_yes": 5, "false_yes": 0, "true_no": 4, "false_no": 1}
    agreement = RecipeAgreement(
        version=1, examples=10, unread=0, accuracy=0.9, kappa=0.8, mean_error=0.1, confusion=confusion
    )
    return Calibration(judge=calibrated_identity(config), recipes={"closed_qa": agreement}, **changes)


MODEL = JudgeConfig(model="m", calibration="c.json")


@pytest.mark.parametrize(
    ("written", "asked", "why"),
    [
        (calibration(MODEL).model_dump_json(), MODEL, None),
        (calibration(MODEL).model_dump_json(), JudgeConfig(model="m", calibration="c.json", allow_self=True), None),
        (
            calibration(JudgeConfig(model="n")).model_dump_json(),
            MODEL,
            "its calibration is of another model, or of other parameters",
        ),
        (
            calibration(MODEL).model_dump_json().replace('"version":1,"examples"', '"version":99,"examples"'),
            MODEL,
            "its calibration is of older words of closed_qa",
        ),
        (None, JudgeConfig(model="m"), "no labelled examples were judged"),
    ],
)
def test_a_calibration_speaks_of_the_judge_that_it_is_of(
    tmp_path: Path, written: str | None, asked: JudgeConfig, why: str | None
) -> None:
    if written is not None:
        (tmp_path / "c.json").write_text(written, encoding="utf-8")
    (use,), problems = judge_uses([asked, asked], tmp_path)
    assert (problems, use.evals, use.uncalibrated) == ([], 2, why)
    assert (use.calibration is not None) == (why is None)
    json.dumps(use.as_json())


@pytest.mark.parametrize("written", [None, "", "{}", "[]", '{"format": "other"}'])
def test_a_file_that_is_no_calibration_is_a_problem(tmp_path: Path, written: str | None) -> None:
    if written is not None:
        (tmp_path / "c.json").write_text(written, encoding="utf-8")
    _, (problem,) = judge_uses([MODEL], tmp_path)
    assert (problem.code, problem.file) == ("INVALID_CALIBRATION", str(tmp_path / "c.json"))


def test_a_layer_is_made_of_what_is_known() -> None:
    assert default_judge(Settings.from_environment(ENVIRONMENT)) == JudgeLayer(
        model="env-m", base_url="http://env/v1/", api_key_env="ENV_KEY"
    )
