"""Who judges the assertions of an eval: each setting from the eval, else the experiment, else the environment. Pure."""

from __future__ import annotations

import json
from typing import Any

from evalfleet.model.definition import EvalDefinition
from evalfleet.model.experiment import Experiment, JudgeLayer
from evalfleet.model.judge import JUDGE_KEY, JUDGE_URL, JudgeConfig


def resolve_judge(definition: EvalDefinition, experiment: Experiment, default: JudgeLayer) -> JudgeConfig | None:
    """The judge of an eval; None when the eval declares that it asks none."""
    if definition.judge is False:
        return None
    own = {} if definition.judge is True else dict(definition.judge)
    return judge_config(JudgeLayer.model_validate_json(json.dumps(own)), experiment.judge, default)


def judge_config(*layers: JudgeLayer | None) -> JudgeConfig:
    """The settings of the first layer that says something, field by field.

    A judge at another place than the default one is sent no key unless a secret is named.
    """
    said: dict[str, Any] = {}
    for layer in filter(None, reversed(layers)):
        said |= {name: value for name in layer.model_fields_set if (value := getattr(layer, name)) is not None}
    url = said.pop("base_url", JUDGE_URL).rstrip("/")
    key = said.pop("api_key_env", JUDGE_KEY if url == JUDGE_URL else None)
    return JudgeConfig(**said, base_url=url, api_key_env=key)
