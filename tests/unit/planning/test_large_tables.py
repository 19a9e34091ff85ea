"""A table of a million rows is planned in bounded memory: its rows wait on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tests.unit.planning.projects import REPO

ROWS = 1_000_000
#: What one row takes in memory beside the plan's window on the rows: its id, its place, its key in the order.
BYTES_A_ROW = 300

PLAN = """
import json, psutil, sys
from pathlib import Path
from evalfleet.model.definition import EvalDefinition
from evalfleet.model.experiment import Selection
from evalfleet.planning.dataset import Dataset
from evalfleet.planning.expand import ArmIdentity, expand
from evalfleet.planning.select import Narrowing, Selector
from evalfleet.planning.selected import scan

folder = Path(sys.argv[1])
definition = EvalDefinition(body=lambda t, row: None, id="big", rows=Dataset.parquet(str(folder), id="id"))
selector = Selector(Selection(), Narrowing())
resident = lambda: psutil.Process().memory_info().rss
before = peak = resident()
found = scan([definition], selector, folder, allow_empty=False, kept_bytes=16 << 20)
cases, ids = 0, set()
for case in expand([ArmIdentity("a", None)], found.evals, 1):
    cases += 1
    if cases <= 3:
        ids.add(case.eval_id)
    if cases % 1000 == 1:
        peak = max(peak, resident())
print(json.dumps({"cases": cases, "ids": sorted(ids), "rows": found.datasets[0].rows, "grown": peak - before}))
"""


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_million_rows_are_planned_in_bounded_memory(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("prompt", pa.string())])
    with parquet.ParquetWriter(tmp_path / "rows.parquet", schema) as writer:
        for begin in range(0, ROWS, 100_000):
            ids = [f"question-{n}" for n in range(begin, begin + 100_000)]
            writer.write_table(pa.table({"id": ids, "prompt": ["x" * 1_000 + name for name in ids]}, schema))
    command = [sys.executable, "-c", PLAN, str(tmp_path)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["cases"], found["rows"], len(found["ids"])) == (ROWS, ROWS, 3)
    assert found["grown"] < (100 << 20) + ROWS * BYTES_A_ROW
