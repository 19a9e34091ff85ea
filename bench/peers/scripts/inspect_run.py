"""inspect_run.py MODE N FOLDER [LANES [LOG]]: n samples through a solver that echoes, scored by includes().

MODE: null; latent, 200 ms each; shell, three commands each in the sandbox `local`; slow, 5 ms each by eval_set, which
goes on where a killed one stopped.
"""

import os
import sys
import time

import anyio
from inspect_ai import Task, eval_set, task
from inspect_ai import eval as run
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, TaskState, solver
from inspect_ai.util import sandbox

mode, n, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
lanes = int(sys.argv[4]) if len(sys.argv) > 4 else 100
log = os.open(sys.argv[5], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if len(sys.argv) > 5 else None


@solver
def echo(seconds: float = 0.0):
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if seconds:
            await anyio.sleep(seconds)
        if log is not None:
            os.write(log, f"{time.time_ns()} {os.getpid()} {state.input_text}\n".encode())
        state.output = ModelOutput.from_content("echo", state.input_text)
        return state

    return solve


@solver
def shell():
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        place = sandbox()
        await place.exec(["sh", "-c", f"echo {state.input_text} > f"])
        await place.exec(["sha256sum", "f"])
        done = await place.exec(["cat", "f"])
        state.output = ModelOutput.from_content("shell", done.stdout.strip())
        return state

    return solve


def rows() -> MemoryDataset:
    return MemoryDataset([Sample(id=index, input=f"row-{index}", target=f"row-{index}") for index in range(n)])


@task
def sweep(seconds: float = 0.0):
    return Task(dataset=rows(), solver=echo(seconds), scorer=includes(), name="sweep")


@task
def commands():
    return Task(dataset=rows(), solver=shell(), scorer=includes(), sandbox="local", name="commands")


def main() -> int:
    given = {"model": "none/none", "log_dir": folder, "max_samples": lanes}
    if mode == "slow":
        _, logs = eval_set(sweep(seconds=0.005), **given)
    elif mode == "shell":
        logs = run(commands(), **given)
    else:
        logs = run(sweep(seconds=0.2 if mode == "latent" else 0.0), **given)
    (done,) = logs
    return 0 if done.status == "success" and done.results.completed_samples == n else 1


if __name__ == "__main__":
    sys.exit(main())
