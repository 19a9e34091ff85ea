"""A hard budget is a promise: what the provider itself counts stays below it, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evalfleet.reports.exit_code import ExitCode
from tests.acceptance.kill.command import Command, Surroundings
from tests.acceptance.kill.processes import COORDINATOR, WORKER, Tree

#: Dollars per million tokens.
INPUT, OUTPUT = 200.0, 1000.0
ANSWER_TOKENS, MOST_TOKENS = 10, 20

FIGURES = re.compile(r"([\d.]+) (?:spent|possible|reserved)")

EVAL = """
from evalfleet import Dataset, T, define_eval, equals


@define_eval(dataset=Dataset.jsonl("rows.jsonl"))
async def paid(t: T, row) -> None:
    turn = await t.send(row["say"])
    turn.succeeded()
    t.check(turn.reply, equals("fine"))
"""

EXPERIMENT = """
schema_version: 1
name: paid
limits: {{concurrency: 32}}
prices: {prices}
budget: {budget}
arms:
{arms}
"""


class Provider:
    """A model that counts what it is asked, by the model's name, in dollars and tokens, before it answers."""

    def __init__(self, seconds: float) -> None:
        self.usd = defaultdict[str, float](float)
        self.tokens: Counter[str] = Counter()
        self.calls = 0
        self.dearest = 0.0
        lock, provider = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                asked: dict[str, Any] = json.loads(body)
                prompt = len(body) // 4
                who = asked["model"]
                with lock:
                    provider.calls += 1
                    provider.usd[who] += (prompt * INPUT + ANSWER_TOKENS * OUTPUT) / 1e6
                    provider.tokens[who] += prompt + ANSWER_TOKENS
                    provider.dearest = max(provider.dearest, (len(body) * INPUT + MOST_TOKENS * OUTPUT) / 1e6)
                time.sleep(seconds)
                message = {"role": "assistant", "content": "fine"}
                usage = {"prompt_tokens": prompt, "completion_tokens": ANSWER_TOKENS}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                answer = json.dumps({"model": "m", "choices": [choice], "usage": usage}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: Any, client_address: Any) -> None: ...  # its client was killed

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def billed(self) -> float:
        return sum(self.usd.values())

    def wait(self, usd: float, seconds: float = 60.0) -> None:
        """Until so much was billed, or so long."""
        ends_at = time.monotonic() + seconds
        while self.billed < usd and time.monotonic() < ends_at:
            time.sleep(0.01)


@contextmanager
def providing(seconds: float) -> Generator[Provider]:
    provider = Provider(seconds)
    thread = threading.Thread(target=provider.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.server.shutdown()
        provider.server.server_close()


def written(folder: Path, url: str, cases: int, budget: str, arms: tuple[str, ...] = ("a",)) -> Path:
    (folder / "evals").mkdir(parents=True)
    (folder / "evals" / "paid.eval.py").write_text(EVAL)
    rows = [json.dumps({"say": f"case {row}"}) for row in range(cases)]
    (folder / "evals" / "rows.jsonl").write_text("\n".join(rows) + "\n")
    lines = [
        f"  {arm}: {{adapter: openai, model: {arm}, base_url: '{url}', max_tokens: {MOST_TOKENS}, stream: false}}"
        for arm in arms
    ]
    prices = json.dumps({arm: {"input": INPUT, "output": OUTPUT} for arm in arms})
    text = EXPERIMENT.format(budget=budget, arms="\n".join(lines), prices=prices)
    (folder / "experiment.yaml").write_text(text)
    return folder


@pytest.mark.ray
async def test_a_budget_holds_while_a_worker_and_the_coordinator_are_killed(
    tmp_path: Path, database: str, record_property: Callable[[str, object], None]
) -> None:
    """A run that would cost about ten dollars, with one; then it is given twenty and goes on to its end."""
    surroundings = Surroundings(tmp_path / "home", database)
    with providing(0.2) as provider:
        folder = written(tmp_path / "project", provider.url, 500, "{usd: 1}")
        on = ("--workers", "2", "--lanes", "8", "--json")
        command = await Command.started(surroundings, folder, "submit", "experiment.yaml", *on)
        run, tree = await command.run_id(), Tree(command.pid)
        for name, at in ((WORKER, 0.2), (COORDINATOR, 0.4)):
            await asyncio.to_thread(provider.wait, at)
            assert not command.over, command.said
            tree.find(name)[0].kill()
        assert await command.ended(120) == ExitCode.LIMITED, command.said
        reason = command.value["run"]["stop_reason"]
        spent, possible, reserved = map(float, FIGURES.findall(reason))
        record_property("figures", f"billed {provider.billed:.4f} of 1, dearest call {provider.dearest:.4f}; {reason}")
        assert provider.billed <= spent + possible <= 1
        assert reserved == 0
        # as near as a call that may cost that much allows
        assert 1 - spent - possible < provider.dearest
        # what the killed worker's lanes had reserved may be spent, and what the killed coordinator had just granted
        assert possible <= (8 + 8) * provider.dearest
        again = await Command.started(surroundings, folder, "resume", run, "--set", "budget.usd=20", *on)
        assert await again.ended(180) == ExitCode.ACCEPTED, again.said
        assert provider.billed <= 20


async def test_tokens_and_arms_have_budgets_of_their_own(tmp_path: Path, database: str) -> None:
    """An arm that has used up its own money waits for none of the run's, and the others go on."""
    surroundings = Surroundings(tmp_path / "home", database)
    with providing(0.02) as provider:
        folder = written(tmp_path / "project", provider.url, 30, "{tokens: 1500, arms: {a: {usd: 0.2}}}", ("a", "b"))
        command = await Command.started(surroundings, folder, "submit", "experiment.yaml", "--inline", "--json")
        assert await command.ended(60) == ExitCode.LIMITED, command.said
        reason = command.value["run"]["stop_reason"]
        assert 0.1 < provider.usd["a"] <= 0.2
        assert provider.usd["b"] > 0.2
        assert 1000 < provider.tokens.total() <= 1500
        assert f"budget.tokens of 1,500: {provider.tokens.total():,} spent, 0 possible, 0 reserved" in reason
        run = command.value["run"]["id"]
        more = "resume", run, "--set", "budget.tokens=90000", "--inline", "--json"
        again = await Command.started(surroundings, folder, *more)
        assert await again.ended(60) == ExitCode.LIMITED, again.said
        assert "budget.arms.a.usd of 0.2: " in again.value["run"]["stop_reason"]
        assert provider.usd["a"] <= 0.2
        assert again.value["arms"][1]["classes"]["passed"] == 30
        plain = await Command.started(surroundings, folder, "resume", run, "--inline", "--json")
        assert await plain.ended(60) == ExitCode.LIMITED, plain.said
        assert "budget.arms.a.usd of 0.2: " in plain.value["run"]["stop_reason"], "what was set is remembered"


async def test_a_soft_budget_lets_what_is_under_way_finish(tmp_path: Path, database: str) -> None:
    surroundings = Surroundings(tmp_path / "home", database)
    with providing(0.02) as provider:
        folder = written(tmp_path / "project", provider.url, 60, "{usd: 0.2, stop: soft}")
        command = await Command.started(surroundings, folder, "submit", "experiment.yaml", "--inline", "--json")
        assert await command.ended(60) == ExitCode.LIMITED, command.said
        assert command.value["run"]["stop_reason"].startswith("budget.usd of 0.2: ")
        assert 0.2 <= provider.billed < 0.2 + 33 * provider.dearest
        assert command.value["totals"]["cancelled"] == 0
        assert command.value["totals"]["passed"] == provider.calls
