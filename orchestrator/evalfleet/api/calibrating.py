"""Asking a judge about examples that people labelled: how far it agrees with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from evalfleet.api.judging import default_judge
from evalfleet.clock import SystemClock
from evalfleet.errors import ConfigurationError, DefinitionError, Problem
from evalfleet.execution.judging import Inquiry, Judging
from evalfleet.grading.agreement import Agreement, agree
from evalfleet.grading.judge_prompts import RECIPE_VERSIONS, Question
from evalfleet.grading.judge_votes import reduce
from evalfleet.grading.prices import PriceList
from evalfleet.model.calibration import Calibration, LabelledExample, Recipe, RecipeAgreement, calibrated_identity
from evalfleet.model.experiment import JudgeLayer, Price
from evalfleet.model.judge import JudgeCall, JudgeConfig
from evalfleet.model.usage import Usage
from evalfleet.planning.experiment_file import load_experiment
from evalfleet.planning.judge_plan import judge_config
from evalfleet.plugins import adapter_factories, judge_model
from evalfleet.randomness import SystemRandom
from evalfleet.redact import Redactor
from evalfleet.settings import EnvironmentSecrets, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What came of the examples: the calibration, by recipe the agreement, every call, and why some gave no ruling."""

    judge: JudgeConfig
    calibration: Calibration
    calls: tuple[JudgeCall, ...]
    unread: tuple[str, ...]


async def calibrate(labels: Path, experiment: Path | None, chosen: JudgeLayer, output: Path | None) -> Calibrated:
    """Ask the judge of an experiment, with what is `chosen` over it, about every example; write what comes of it.

    Raises DefinitionError naming every line that is no example, ConfigurationError when no judge is named, its key
    is not set, or a file can't be read or written.
    """
    examples = await asyncio.to_thread(read_examples, labels)
    loaded = None if experiment is None else load_experiment(experiment, {}, adapter_factories()).experiment
    own, prices = (None, {}) if loaded is None else (loaded.judge, dict(loaded.prices))
    config = judge_config(chosen, own, default_judge(Settings.from_environment()))
    if config.model is None:
        raise ConfigurationError(
            "no judge is named: say --model, or judge.model in an experiment that --experiment names"
        )
    calls = await _asked(examples, config, prices)
    ruled = [_score(votes, config) for votes in calls]
    recipes: dict[Recipe, RecipeAgreement] = {}
    for example in examples:
        if example.recipe not in recipes:
            recipes[example.recipe] = _agreement(example.recipe, agree(_pairs(examples, ruled, example.recipe)))
    calibration = Calibration(judge=calibrated_identity(config), recipes=recipes)
    if output is not None:
        await asyncio.to_thread(_write, output, calibration)
    flat = tuple(call for votes in calls for call in votes)
    reasons = Counter(f"{call.code} ({call.message})" for call in flat if call.ruling is None)
    return Calibrated(judge=config, calibration=calibration, calls=flat, unread=tuple(reasons))


def read_examples(path: Path) -> list[LabelledExample]:
    """The labelled examples of a JSONL file. Raises DefinitionError or ConfigurationError."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: the labelled examples can't be read: {error}") from error
    examples: list[LabelledExample] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            examples.append(LabelledExample.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"])) or None
            message = first["msg"].removeprefix("Value error, ")
            problems.append(Problem("INVALID_LABEL", message[:1].lower() + message[1:], str(path), number, field=field))
    if not examples and not problems:
        problems.append(Problem("INVALID_LABEL", "the file holds no example", str(path)))
    if problems:
        raise DefinitionError("INVALID_LABEL", problems)
    return examples


async def _asked(
    examples: Sequence[LabelledExample], config: JudgeConfig, own: dict[str, Price]
) -> list[list[JudgeCall]]:
    """The votes on each example, in order; the worker's bound on calls holds here, too."""
    key = None if config.api_key_env is None else EnvironmentSecrets().resolve(config.api_key_env)
    prices = PriceList(own)
    prices.load([config.model])

    def price(usage: Usage | None, model: str | None) -> float | None:
        return None if usage is None else prices(model, usage)

    judging = Judging(SystemClock(), judge_model(SystemClock(), SystemRandom()))
    inquiries = [
        Inquiry(
            question=_question(example),
            config=config,
            key=key,
            redactor=Redactor.of(() if key is None else (key,)),
            price=price,
            note=lambda _: None,
            keep=lambda _: None,
            assertion=number,
        )
        for number, example in enumerate(examples)
    ]
    try:
        return list(await asyncio.gather(*(judging.calls(inquiry) for inquiry in inquiries)))
    finally:
        await judging.close()


def _question(example: LabelledExample) -> Question:
    given = {"input": example.input, "output": example.output}
    named = {"reference": example.reference, "source": example.source, "other": example.other}
    given |= {name: text for name, text in named.items() if text is not None}
    return Question(
        recipe=example.recipe,
        text=example.question or "",
        material={**given, **example.material},
        choices=example.choices,
    )


def _score(votes: Sequence[JudgeCall], config: JudgeConfig) -> float | None:
    scores = [call.ruling.score for call in votes if call.ruling is not None]
    return reduce(scores, config.reducer) if len(scores) == len(votes) else None


def _pairs(
    examples: Iterable[LabelledExample], ruled: Iterable[float | None], recipe: str
) -> list[tuple[float, float | None]]:
    return [
        (float(example.label), score)
        for example, score in zip(examples, ruled, strict=True)
        if example.recipe == recipe
    ]


def _agreement(recipe: str, found: Agreement) -> RecipeAgreement:
    return RecipeAgreement(
        version=RECIPE_VERSIONS[recipe],
        examples=found.examples,
        unread=found.unread,
        accuracy=found.accuracy,
        kappa=found.kappa,
        mean_error=found.mean_error,
        confusion={
            "true_yes": found.true_yes,
            "false_yes": found.false_yes,
            "true_no": found.true_no,
            "false_no": found.false_no,
        },
    )


def _write(path: Path, calibration: Calibration) -> None:
    try:
        path.write_text(calibration.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
