"""`turn.judge` and `t.judge`: the recipes by which an author asks a judge; each call registers one measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic

from evalfleet.execution.judging import Judged
from evalfleet.execution.scoped import Author, H
from evalfleet.execution.state import AttemptState
from evalfleet.execution.unrecorded import Unrecorded
from evalfleet.grading.judge_prompts import Question
from evalfleet.model.turn import TurnInput

_CODE = "INVALID_JUDGE_QUESTION"


class TurnJudge(Generic[H]):
    """Asks about one turn: its material is what was sent and what the agent said, frozen at the call.

    Every recipe gives a measurement in [0, 1]. `material` names further texts that the judge is to see. Each raises
    AuthoringError on arguments that it can't use.
    """

    __slots__ = ("_author", "_material", "_subject")

    def __init__(self, author: Author[H], subject: Any, sent: TurnInput, reply: str) -> None:
        self._author = author
        self._subject = subject
        self._material = {"input": _said(sent), "output": str(reply)}

    def closed_qa(self, question: str, *, material: Mapping[str, str] | None = None) -> H:
        """Whether the output satisfies a question with the answers yes (1) and no (0)."""
        judged = _asked(self._author.state, "closed_qa", question, [self._material, material])
        return self._author.add("judge.closed_qa", judged, self._subject)

    def rubric(self, rubric: str, *, material: Mapping[str, str] | None = None) -> H:
        """How far the output meets a rubric, from 0 to 1."""
        judged = _asked(self._author.state, "rubric", rubric, [self._material, material])
        return self._author.add("judge.rubric", judged, self._subject)

    def factuality(self, reference: str, *, material: Mapping[str, str] | None = None) -> H:
        """How the output's facts relate to the reference's: the same or immaterially other 1, more 0.6, less 0.4,
        contradicting 0."""
        judged = _asked(self._author.state, "factuality", None, [self._material, {"reference": reference}, material])
        return self._author.add("judge.factuality", judged, self._subject)

    def summarizes(self, source: str, *, material: Mapping[str, str] | None = None) -> H:
        """How well the output summarizes a source, from 0 to 1."""
        judged = _asked(self._author.state, "summarizes", None, [self._material, {"source": source}, material])
        return self._author.add("judge.summarizes", judged, self._subject)

    def compare(self, other: str, *, criteria: str | None = None, material: Mapping[str, str] | None = None) -> H:
        """Whether the output is better (1), as good (0.5) or worse (0) than another answer."""
        judged = _asked(self._author.state, "compare", criteria, [self._material, {"other": other}, material])
        return self._author.add("judge.compare", judged, self._subject)

    def custom(
        self, task: str, *, choices: Mapping[str, float] | None = None, material: Mapping[str, str] | None = None
    ) -> H:
        """Any task: answered by one of `choices`, each with its score in [0, 1], or by a score when there are none."""
        judged = _asked(self._author.state, "custom", task, [self._material, material], choices)
        return self._author.add("judge.custom", judged, self._subject)


class RootJudge(Generic[H]):
    """Asks about any texts, as `turn.judge` does about its turn's: `input` is what was asked, `output` the answer."""

    __slots__ = ("_author",)

    def __init__(self, author: Author[H]) -> None:
        self._author = author

    def closed_qa(self, question: str, *, input: str, output: str, material: Mapping[str, str] | None = None) -> H:
        """Whether the output satisfies a question with the answers yes (1) and no (0)."""
        judged = _asked(self._author.state, "closed_qa", question, [{"input": input, "output": output}, material])
        return self._author.add("judge.closed_qa", judged, _unknown(input, output))

    def rubric(self, rubric: str, *, input: str, output: str, material: Mapping[str, str] | None = None) -> H:
        """How far the output meets a rubric, from 0 to 1."""
        judged = _asked(self._author.state, "rubric", rubric, [{"input": input, "output": output}, material])
        return self._author.add("judge.rubric", judged, _unknown(input, output))

    def factuality(self, reference: str, *, input: str, output: str, material: Mapping[str, str] | None = None) -> H:
        """How the output's facts relate to the reference's, as `turn.judge.factuality` scores it."""
        given = [{"input": input, "output": output, "reference": reference}, material]
        judged = _asked(self._author.state, "factuality", None, given)
        return self._author.add("judge.factuality", judged, _unknown(input, output))

    def summarizes(self, source: str, *, input: str, output: str, material: Mapping[str, str] | None = None) -> H:
        """How well the output summarizes a source, from 0 to 1."""
        given = [{"input": input, "output": output, "source": source}, material]
        judged = _asked(self._author.state, "summarizes", None, given)
        return self._author.add("judge.summarizes", judged, _unknown(input, output))

    def compare(
        self,
        other: str,
        *,
        input: str,
        output: str,
        criteria: str | None = None,
        material: Mapping[str, str] | None = None,
    ) -> H:
        """Whether the output is better (1), as good (0.5) or worse (0) than another answer."""
        given = [{"input": input, "output": output, "other": other}, material]
        judged = _asked(self._author.state, "compare", criteria, given)
        return self._author.add("judge.compare", judged, _unknown(input, output))

    def custom(
        self,
        task: str,
        *,
        input: str,
        output: str,
        choices: Mapping[str, float] | None = None,
        material: Mapping[str, str] | None = None,
    ) -> H:
        """Any task: answered by one of `choices`, each with its score in [0, 1], or by a score when there are none."""
        judged = _asked(self._author.state, "custom", task, [{"input": input, "output": output}, material], choices)
        return self._author.add("judge.custom", judged, _unknown(input, output))


def check_declared(state: AttemptState) -> None:
    """Raise AuthoringError unless the eval declares that it asks a judge."""
    if state.job.judge is None:
        raise state.refuse("this eval declares no judge: say @define_eval(judge=True)", "JUDGE_NOT_DECLARED")


def _said(sent: TurnInput) -> str:
    """What a person sent: the text, or the answers to the agent's questions."""
    answers = [response.option_id if response.text is None else response.text for response in sent.responses]
    return "\n".join(part for part in (sent.text, *answers) if part)


def _unknown(*texts: Any) -> Unrecorded | None:
    """The first of these that a replay does not know."""
    return next((text for text in texts if isinstance(text, Unrecorded)), None)


def _asked(
    state: AttemptState,
    recipe: str,
    text: str | None,
    material: list[Mapping[str, str] | None],
    choices: Mapping[str, float] | None = None,
) -> Judged:
    """The question, checked. `text` is None for a recipe that takes none of its own."""
    if text is not None and not (isinstance(text, str) and text.strip()):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise state.refuse(f"judge.{recipe}() takes a text that says what to judge", _CODE)
    given: dict[str, str] = {}
    for part in filter(None, material):
        for name, value in part.items():
            given[_name(state, recipe, name, given)] = _text(state, recipe, name, value)
    if choices is not None:
        _check_choices(state, choices)
    kept = None if choices is None else {label: float(score) for label, score in choices.items()}
    return Judged(Question(recipe=recipe, text=str(text or ""), material=given, choices=kept))


def _name(state: AttemptState, recipe: str, name: Any, given: Mapping[str, str]) -> str:
    if type(name) is not str or not name.isidentifier():
        raise state.refuse(f"judge.{recipe}(): material is named by words like policy, not {name!r:.40}", _CODE)
    if name in given:
        raise state.refuse(f"judge.{recipe}(): the material {name} is given already", _CODE)
    return name


def _text(state: AttemptState, recipe: str, name: str, value: Any) -> str:
    if isinstance(value, Unrecorded):
        return ""  # never asked about: the assertion's subject says that nobody knows it
    if not isinstance(value, str):
        raise state.refuse(f"judge.{recipe}(): {name} is a text, not {type(value).__name__}", _CODE)
    return str(value)


def _check_choices(state: AttemptState, choices: Any) -> None:
    if not isinstance(choices, Mapping) or len({str(label).casefold() for label in choices}) < 2:  # pyright: ignore
        raise state.refuse("judge.custom() takes two or more choices with their scores", _CODE)
    for label, score in choices.items():  # pyright: ignore
        is_number = isinstance(score, (int, float)) and not isinstance(score, bool)
        if not isinstance(label, str) or not label.strip() or not label.isprintable():
            raise state.refuse(f"judge.custom(): a choice is a printable text, not {label!r:.40}", _CODE)
        if not is_number or not 0 <= score <= 1:
            raise state.refuse(f"judge.custom(): the score of {label!r:.40} is a number in [0, 1]", _CODE)
