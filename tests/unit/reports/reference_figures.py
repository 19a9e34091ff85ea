"""Writes `tests/data/reference_figures.json`: what scipy and statsmodels say of 200 random tables.

Neither is a dependency: run `python -m tests.unit.reports.reference_figures` where both are installed.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "data" / "reference_figures.json"
TABLES = 200


def written() -> dict[str, Any]:
    import numpy
    import scipy.stats
    import statsmodels
    from statsmodels.stats.multitest import multipletests

    draw = random.Random(11)
    tables: list[dict[str, Any]] = []
    for place in range(TABLES):
        most = (3, 40, 2_000, 300_000)[place % 4]
        first_only, second_only = draw.randint(0, most), draw.randint(0, most)
        total = draw.randint(1, most)
        passed = draw.randint(0, total)
        k = draw.randint(1, min(total, 10))
        drawn = scipy.stats.hypergeom(total, passed, k)
        values = [draw.gauss(0.2, 1) for _ in range(draw.randint(2, 12))]
        share = draw.random()
        several = [draw.random() ** 3 for _ in range(draw.randint(1, 8))]
        wilson = scipy.stats.binomtest(passed, total).proportion_ci(method="wilson")
        error = float(scipy.stats.sem(values))
        tables.append(
            {
                "discordant": [first_only, second_only],
                "mcnemar": float(scipy.stats.binomtest(first_only, first_only + second_only).pvalue)
                if first_only + second_only
                else 1.0,
                "answers": [total, passed, k],
                "wilson": [float(wilson.low), float(wilson.high)],
                "pass_at_k": float(1 - drawn.pmf(0)),
                "pass_hat_k": float(drawn.pmf(k)),
                "values": values,
                "error": error,
                "normal": float(2 * scipy.stats.norm.sf(abs(numpy.mean(values)) / error)),
                "share": share,
                "percentile": float(numpy.percentile(values, share * 100)),
                "several": several,
                "holm": [float(value) for value in multipletests(several, method="holm")[1]],
            }
        )
    return {"scipy": scipy.__version__, "statsmodels": statsmodels.__version__, "tables": tables}


if __name__ == "__main__":
    FILE.write_text(json.dumps(written(), indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
