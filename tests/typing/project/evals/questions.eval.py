"""Rows of every kind of dataset, chosen, with a model and without; a score-style eval."""

from __future__ import annotations

from typing import Any, assert_type

from pydantic import BaseModel

from evalfleet import (
    Dataset,
    ScoreT,
    T,
    approx,
    define_eval,
    define_match,
    define_score_eval,
    define_score_match,
    equals,
    one_of,
    pattern,
    similarity,
)

polite = define_match("polite", lambda value: "please" in str(value))
brief = define_score_match("brief", lambda value: 1 / (1 + len(str(value))))


class Question(BaseModel):
    key: str
    prompt: str
    expected: str
    level: int


def short(row: Question) -> bool:
    return len(row.prompt) < 80


jsonl = Dataset.jsonl("questions.jsonl", id="key", model=Question).filter(short).sample(20, seed=7)
csv = Dataset.csv("questions.csv", id="key", delimiter=";").filter({"level": ["1", "2"]}).limit(5)
parquet = Dataset.parquet("questions.parquet", model=Question).shuffle(seed=1).limit(5)
hub = Dataset.huggingface("questions", split="test", id="key")
assert_type(hub, Dataset)


@define_eval(dataset=jsonl, tags=["questions"])
async def typed(t: T, row: Question) -> None:
    turn = await t.send(row.prompt)
    t.check(turn.reply, equals(row.expected) | one_of([row.expected.upper()])).gate()
    t.check(turn.reply, ~pattern(r"(?i)sorry"))
    t.check(turn.reply, polite)


@define_eval(dataset=csv)
async def untyped(t: T, row: dict[str, Any]) -> None:
    await t.send(row["prompt"])
    t.check(t.reply, equals(row["expected"]))


@define_score_eval(dataset=parquet, judge={"votes": 3, "reducer": "median"})
async def scored(t: ScoreT, row: Question) -> None:
    turn = await t.send(row.prompt)
    t.check(turn.reply, similarity(row.expected)).gate(0.5).score(3)
    t.check(turn.reply, brief).at_least(0.2).score(1)
    t.check(row.level, approx(2, abs=0.5)).score(1)
    turn.judge.closed_qa("Is the cause named?").score(1).gate(0.5)
    turn.judge.custom("How polite?", choices={"rude": 0, "polite": 1}, material={"policy": "Be kind."}).score(1)
    await t.judge.compare("No idea.", input=row.prompt, output=turn.reply).at_least(0.5).or_stop()
