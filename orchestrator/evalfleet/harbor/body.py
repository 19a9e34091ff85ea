"""The test body of every task folder: each instruction is a send, and its tests decide what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalfleet.assertions.custom import define_score_match
from evalfleet.assertions.values import is_true
from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.harbor.health import become_healthy
from evalfleet.harbor.reward import REWARD, Reward, combined
from evalfleet.harbor.task_folder import Step, TaskFolder
from evalfleet.harbor.verifier import Verifier
from evalfleet.model.verdict import Style

if TYPE_CHECKING:
    from evalfleet.execution.context import T
    from evalfleet.execution.conversation import SessionHandle

#: Numbers of one reward.json that are kept beside the reward.
_OTHERS = 64
_NAME_LENGTH = 128
_AS_IT_IS = define_score_match(REWARD, lambda value: value)


@dataclass(frozen=True, slots=True)
class TaskBody:
    """Runs one task folder. In pass-style a reward of 1 passes; in score-style the reward is the score."""

    task: TaskFolder
    style: Style = Style.PASS

    async def __call__(self, t: T) -> None:
        verifier = Verifier(t, self.task.root)
        await become_healthy(t, self.task.health, "the sandbox")
        await verifier.prepare()
        rewards: list[Reward] = []
        line: SessionHandle = t
        judged = _judged_before(t)
        for step in self.task.steps:
            await _lay_out(t, step)
            await become_healthy(t, step.health, f"the sandbox of step {step.name}")
            in_time = await _hear(t, line, step)
            if len(rewards) < len(judged):
                reward = judged[len(rewards)]
            elif step is not self.task.steps[-1]:
                reward = await verifier.verify(step, last=False)
            else:
                async with t.sandbox.kept_unless_decided({"rewards": [reward.as_json() for reward in rewards]}):
                    reward = await verifier.verify(step, last=True)
                    self._require_whole(t, reward)
            rewards.append(reward)
            _keep(t, step, reward)
            if _misses(t, step, reward):
                break
            if not in_time:
                line = t.new_session()  # a session whose send was cut off can't go on
        measured = t.check(combined(rewards, final=self.task.final), _AS_IT_IS).label(REWARD)
        if self.style is Style.SCORE:
            measured.score(1)
        else:
            measured.gate(1)

    def _require_whole(self, t: T, reward: Reward) -> None:
        """Take no less than a full reward from a workdir that was put into a new sandbox, unless it is all there is."""
        if t.sandbox.notes_beside is None or reward.value == 1 or self.task.workdir_is_all:
            return
        message = (
            f"the reward {reward.value:g} came of the kept workdir alone, which lacks what the agent did elsewhere: if"
            ' nothing else counts, say so in task.toml, `[metadata.evalfleet] state = "workdir"`'
        )
        raise AttemptFailure(FailureKind.GRADER, "STATE_INCOMPLETE", message)


def _judged_before(t: T) -> list[Reward]:
    """In a replay, the rewards of the steps before the one whose tests decided nothing."""
    beside = t.sandbox.notes_beside
    return [] if beside is None else [Reward.of_json(each) for each in beside["rewards"]]


async def _lay_out(t: T, step: Step) -> None:
    """Give the sandbox what this step begins with."""
    if step.workdir is None:
        return
    await t.sandbox.upload(step.workdir, ".")
    if not (step.workdir / "setup.sh").is_file():
        return
    result = await t.sandbox.run("bash", "setup.sh")
    if not result.ok:
        said = result.stderr.decode("utf-8", "replace").strip()[-300:]
        message = f"setup.sh of step {step.name} ended with exit code {result.exit_code}: {said}"
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_SETUP_FAILED", message)


async def _hear(t: T, line: SessionHandle, step: Step) -> bool:
    """Tell the agent what to do; False when it took longer than it may. What it has done by then is judged."""
    limit = None if t.time_left is None else step.agent_seconds  # no deadline counts for who debugs
    try:
        async with asyncio.timeout(limit):
            await line.send(step.instruction)
    except TimeoutError:
        t.log(f"the agent took longer than {limit:g} s; its tests run all the same")
        return False
    return True


def _keep(t: T, step: Step, reward: Reward) -> None:
    """Record what decides nothing by itself: the reward of one step of several, and numbers beside it."""
    where = "" if step.name is None else f" of {step.name}"
    if step.name is not None:
        t.check(reward.value, _AS_IT_IS).label(f"{REWARD}{where}").at_least(1)
    for name, number in list(reward.others.items())[:_OTHERS]:
        if 0 <= number <= 1 and name.strip() and name.isprintable() and len(name) <= _NAME_LENGTH:
            t.check(number, _AS_IT_IS).label(f"{name}{where}").at_least(1)


def _misses(t: T, step: Step, reward: Reward) -> bool:
    """Whether a step's reward is too low to go on, on the record where a step asks for that."""
    if not step.min_reward:
        return False
    missed = reward.misses(step.min_reward)
    t.check(missed is None, is_true()).label(f"{step.name} reaches its min_reward")
    if missed is not None:
        t.log(f"no step follows {step.name}: {missed}")
    return missed is not None
