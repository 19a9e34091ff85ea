"""pydantic_evals_run.py N FOLDER LANES SECONDS: n cases through an echo, the report as JSON at the end."""

import asyncio
import sys
from pathlib import Path

from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Contains, Evaluator, EvaluatorContext
from pydantic_evals.reporting import EvaluationReportAdapter

n, folder, lanes, seconds = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])


async def agent(text: str) -> str:
    if seconds:
        await asyncio.sleep(seconds)
    return text


class Included(Evaluator[str, str]):
    def evaluate(self, ctx: EvaluatorContext[str, str]) -> bool:
        return bool(Contains(value=ctx.inputs).evaluate(ctx).value)


cases = [Case(name=str(index), inputs=f"row-{index}") for index in range(n)]
dataset = Dataset(name="sweep", cases=cases, evaluators=[Included()])
report = dataset.evaluate_sync(agent, max_concurrency=lanes, progress=False)
folder.mkdir(parents=True, exist_ok=True)
(folder / "report.json").write_bytes(EvaluationReportAdapter.dump_json(report))
sys.exit(0 if len(report.cases) == n and report.averages().assertions == 1.0 else 1)
