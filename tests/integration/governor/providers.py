"""A provider that keeps a rate, in a process of its own, and projects whose agents call it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from evalfleet.processes import die_with_parent

#: What the simulated agents are asked, as often as there are cases.
EVAL = """
from evalfleet import Dataset, define_eval


@define_eval(dataset=Dataset.jsonl("rows.jsonl", id="name"))
async def ask(t, row):
    await t.send(row["name"])
    t.succeeded()
"""


class Provider:
    """A provider under way at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opener = build_opener(ProxyHandler({}))

    def tally(self) -> dict[str, Any]:
        """What it saw so far: see `evalfleet.testing.rated_endpoint.Tally`."""
        return json.loads(self._opener.open(f"{self.url}/tally").read())

    def storm(self, retry_after: float | None, *, seconds: float = 0.0, calls: int = 0) -> None:
        """Have every call refused from now on for so long, or so many."""
        body = json.dumps({"seconds": seconds, "calls": calls, "retry_after": retry_after}).encode()
        self._opener.open(Request(f"{self.url}/storm", data=body, method="POST")).read()


@contextmanager
def provider(**rate: Any) -> Generator[Provider]:
    """A provider with the fields of `ProviderRate`."""
    command = [sys.executable, "-m", "evalfleet.testing.rated_endpoint", json.dumps(rate)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    assert process.stdout is not None
    try:
        yield Provider(f"http://127.0.0.1:{process.stdout.readline().strip()}")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def project(folder: Path, url: str, cases: int, more: str = "", asker: str = "c") -> Path:
    """A project of so many cases, each one call of the provider that begins with `asker`; its experiment file."""
    (folder / "evals").mkdir(parents=True)
    (folder / "evals" / "ask.eval.py").write_text(EVAL)
    rows = "".join(json.dumps({"name": f"{asker}{number}"}) + "\n" for number in range(cases))
    (folder / "evals" / "rows.jsonl").write_text(rows)
    (folder / "experiment.yaml").write_text(f"""
schema_version: 1
name: rated
arms:
  a: {{adapter: openai, model: m, base_url: {url}/v1, api_key_env: RATED_KEY}}
{more}
""")
    return folder / "experiment.yaml"
