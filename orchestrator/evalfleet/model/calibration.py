"""Labelled examples for a judge, and the file that says how far a judge agrees with them. Strict, from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from evalfleet.model.experiment import Count, Share, Strict, Text
from evalfleet.model.judge import JudgeConfig

Recipe = Literal["closed_qa", "rubric", "factuality", "summarizes", "compare", "custom"]

#: The recipes that need a text of their own, and the material that others need beside the output.
_OWN_TEXT = frozenset({"closed_qa", "rubric", "custom"})
_NEEDED: Mapping[str, str] = {"factuality": "reference", "summarizes": "source", "compare": "other"}


class LabelledExample(Strict):
    """One example that people judged. `label` is in [0, 1], or true and false for 1 and 0.

    `question` is the recipe's own text: a question, a rubric, what counts in a comparison, or a custom task.
    """

    recipe: Recipe
    question: Text | None = None
    input: str = ""
    output: str
    reference: str | None = None
    source: str | None = None
    other: str | None = None
    material: Mapping[str, str] = {}
    choices: Mapping[Text, Share] | None = None
    label: bool | Share

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.recipe in _OWN_TEXT and self.question is None:
            raise ValueError(f"the recipe {self.recipe} needs a question")
        needed = _NEEDED.get(self.recipe)
        if needed is not None and getattr(self, needed) is None:
            raise ValueError(f"the recipe {self.recipe} needs a {needed}")
        return self


class RecipeAgreement(Strict):
    """How far a judge agrees with people about one recipe, at the version of it that was asked."""

    version: Count
    examples: Count
    unread: Annotated[int, Field(ge=0)]
    accuracy: Share | None
    kappa: float | None
    mean_error: Share | None
    confusion: Mapping[Literal["true_yes", "false_yes", "true_no", "false_no"], Annotated[int, Field(ge=0)]]


class Calibration(Strict):
    """What `orchestrate judge calibrate` found out. `judge` is the identity of the judge that was asked."""

    format: Literal["evalfleet-judge-calibration"] = "evalfleet-judge-calibration"
    version: Literal[1] = 1
    judge: Mapping[str, JsonValue]
    recipes: Annotated[Mapping[Recipe, RecipeAgreement], Field(min_length=1)]

    def is_of(self, config: JudgeConfig) -> bool:
        """Whether it speaks of this judge: the same model, parameters and votes."""
        return dict(self.judge) == calibrated_identity(config)


def calibrated_identity(config: JudgeConfig) -> dict[str, JsonValue]:
    """What of a judge's identity a calibration is of: all but which arms it may judge."""
    return {name: value for name, value in config.identity().items() if name != "allow_self"}
