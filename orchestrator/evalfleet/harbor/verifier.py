"""Runs the tests of a task folder in its sandbox, where the agent can't have prepared what they find or decide.

They come after the send, into folders that are made anew, and what they decided is read once they have ended. While
they run, an agent that is the same user could still meddle by a process it left behind: a task whose `[agent]` names a
user has its tests run as another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.harbor.reward import Reward, RewardFault, read_reward
from evalfleet.harbor.task_folder import TEST_SCRIPT, Step
from evalfleet.sandbox_ports import CommandResult
from evalfleet.tarballs import tar_of

if TYPE_CHECKING:
    from evalfleet.execution.context import T

_ROOT = "0"
#: What our scripts end with: the place belongs to another user; something stood in it, or was put there.
_NOT_OURS, _TAMPERED = 64, 65
_FILE_BYTES = 1 << 16
_SCRIPT_SECONDS = 120.0
_SHOWN = 2_000

#: Before the first send. `$1` is the root, which some engines make read-only for everybody: its owner may change that.
_CLEAR = f"""
[ -w "${{1:-/}}" ] || chmod u+w "${{1:-/}}" 2> /dev/null || exit {_NOT_OURS}
[ -d "$1/logs" ] && [ ! -L "$1/logs" ] || rm -rf -- "$1/logs"
rm -rf -- "$1/logs/verifier" && mkdir -p -- "$1/logs/verifier"
"""
#: After a send. `$1` is the root, or `$3` asks for a fresh one; `$2` the mode of the verdict's folder. Prints the root.
_PLACE = f"""
root=$1
if [ "$3" = fresh ]; then root=$(mktemp -d) && chmod 755 "$root" || exit 1; fi
for place in "$root/logs" "$root/logs/verifier"; do
  if [ -L "$place" ] || {{ [ -e "$place" ] && [ ! -d "$place" ]; }}; then echo "$place"; exit {_TAMPERED}; fi
done
for file in "$root/logs/verifier/reward.json" "$root/logs/verifier/reward.txt"; do
  if [ -e "$file" ] || [ -L "$file" ]; then echo "$file"; exit {_TAMPERED}; fi
done
rm -rf -- "$root/logs/verifier" "$root/tests" && mkdir -p -- "$root/logs/verifier" "$root/tests" || exit 1
chmod "$2" "$root/logs/verifier" && tar -xof - -C "$root/tests" && chmod a+rx "$root/tests/{TEST_SCRIPT}" || exit 1
printf %s "$root"
"""
#: After the tests. `$1` is the root; printed are name, length and content of each file that is there.
_READ = f"""
logs=$1/logs/verifier
for place in "$1/logs" "$logs" "$1/tests"; do
  if [ -L "$place" ]; then echo "$place"; exit {_TAMPERED}; fi
done
for file in "$logs/reward.json" "$logs/reward.txt" "$1/tests/{TEST_SCRIPT}"; do
  if [ -L "$file" ]; then echo "$file"; exit {_TAMPERED}; fi
  [ -e "$file" ] || continue
  case $file in "$logs"/*) if [ ! -f "$file" ] || [ ! -O "$file" ]; then echo "$file"; exit {_TAMPERED}; fi;; esac
  echo "${{file##*/}}" $(wc -c < "$file")
  head -c {_FILE_BYTES} < "$file"
done
"""
#: Between two steps: the agent of the next one finds neither tests nor verdict. `$1` is the root.
_REMOVE = 'rm -rf -- "$1/logs/verifier" "$1/tests" && mkdir -p -- "$1/logs/verifier"'


class Verifier:
    """The tests of one attempt's steps. Everything raises AttemptFailure that is no reward."""

    def __init__(self, t: T, root: str | None) -> None:
        self._t = t
        self._root = root
        self._owner: str | None = None

    async def prepare(self) -> None:
        """Make the verdict's place before the agent is told anything, so that what is in it later is the agent's."""
        if self._root is None:
            return
        result = await self._script(_CLEAR, self._root)
        if result.exit_code == _NOT_OURS:
            self._owner = _ROOT
            result = await self._script(_CLEAR, self._root)
        _require(result)

    async def verify(self, step: Step, *, last: bool) -> Reward:
        """Bring the step's tests, run them and read what they decided."""
        tests = await asyncio.to_thread(packed, step.tests)
        root = await self._place(step, tests)
        result = await self._run(step, root)
        if result.timed_out:
            self._tell(result)
            message = f"the tests took longer than {step.verifier_seconds:g} s"
            raise AttemptFailure(FailureKind.GRADER, "VERIFIER_TIMEOUT", message)
        try:
            reward = await self._read(step, root)
        except RewardFault as fault:
            self._tell(result)
            message = f"{fault}; {TEST_SCRIPT} ended with exit code {result.exit_code}"
            raise AttemptFailure(FailureKind.GRADER, fault.code, message) from fault
        if reward.value < 1:
            self._tell(result)
        if not last:
            _require(await self._script(_REMOVE, root))
        return reward

    async def _place(self, step: Step, tests: bytes) -> str:
        """Where the tests lie now: below it are `tests` and `logs/verifier`."""
        mode = "755" if step.verifier_user == self._owner else "1777"
        fresh = "fresh" if self._root is None else ""
        result = await self._script(_PLACE, self._root or "", mode, fresh, stdin=tests)
        _require(result)
        return result.text

    async def _run(self, step: Step, root: str) -> CommandResult:
        env = {**step.env, "EVALFLEET_TESTS": f"{root}/tests", "EVALFLEET_VERDICT": f"{root}/logs/verifier"}
        seconds = None if self._t.time_left is None else step.verifier_seconds  # no deadline counts for who debugs
        argv = ("sh", "-c", '"$0"', f"{root}/tests/{TEST_SCRIPT}")
        return await self._t.sandbox.run(*argv, env=env, timeout=seconds, user=step.verifier_user)

    async def _read(self, step: Step, root: str) -> Reward:
        argv = ("sh", "-c", _READ, "verifier", root)
        result = await self._t.sandbox.run(*argv, timeout=_SCRIPT_SECONDS, user=step.verifier_user)
        _require(result)
        files = _files(result.stdout)
        script = await asyncio.to_thread(_script_of, step.tests)
        if files.get(TEST_SCRIPT) != script[:_FILE_BYTES]:
            raise _tampered(f"{root}/tests/{TEST_SCRIPT}")
        return read_reward(files.get("reward.json"), files.get("reward.txt"))

    async def _script(self, script: str, *args: str, stdin: bytes = b"") -> CommandResult:
        argv = ("sh", "-c", script, "verifier", *args)
        return await self._t.sandbox.run(*argv, stdin=stdin, timeout=_SCRIPT_SECONDS, user=self._owner)

    def _tell(self, result: CommandResult) -> None:
        """Keep the end of what the tests printed for whoever wonders."""
        for name, output in (("stdout", result.stdout), ("stderr", result.stderr)):
            if output:
                self._t.log(f"{TEST_SCRIPT}, the end of its {name}:\n{output[-_SHOWN:].decode('utf-8', 'replace')}")


def packed(folders: Sequence[Path]) -> bytes:
    """The tar of the folders' content, each laid over those before it. Blocking."""
    return tar_of(
        {path.relative_to(folder).as_posix(): path for folder in folders for path in sorted(folder.rglob("*"))}
    )


def _script_of(folders: Sequence[Path]) -> bytes:
    return next(path for folder in reversed(folders) if (path := folder / TEST_SCRIPT).is_file()).read_bytes()


def _files(printed: bytes) -> dict[str, bytes]:
    """The files that our script printed. Raises RewardFault for one that is longer than a verdict, or was growing."""
    found: dict[str, bytes] = {}
    while printed:
        head, _, printed = printed.partition(b"\n")
        name, _, length = head.decode("utf-8", "replace").partition(" ")
        if not length.strip().isdigit():
            raise RewardFault("REWARD_INVALID", "what the tests left was still being written")
        size = int(length)
        if size > _FILE_BYTES and name != TEST_SCRIPT:
            raise RewardFault("REWARD_INVALID", f"{name} is {size} bytes long")
        found[name], printed = printed[: min(size, _FILE_BYTES)], printed[min(size, _FILE_BYTES) :]
    return found


def _require(result: CommandResult) -> None:
    """Raise what a script of ours that did not do its work means."""
    if result.exit_code == _TAMPERED:
        raise _tampered(result.text.strip())
    if not result.ok:
        said = result.stderr.decode("utf-8", "replace").strip()[-300:] or f"exit code {result.exit_code}"
        raise AttemptFailure(FailureKind.GRADER, "TESTS_NOT_PLACED", f"the tests could not be put in place: {said}")


def _tampered(place: str) -> AttemptFailure:
    message = f"{place} is the agent's own doing, and a verdict is the tests' alone"
    return AttemptFailure(FailureKind.AGENT, "VERDICT_TAMPERED", message)
