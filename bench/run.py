"""The command line of the bench: `python -m bench`, or `make bench`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from bench import machine
from bench.accounts import open_account
from bench.figures import Figure, Figures
from bench.goals import Judged, judge
from bench.measure import Bench
from bench.peers import PEERS, Peer
from bench.products import environment, warm_server
from bench.tables import render
from bench.workloads.setting import Setting
from bench.workloads.w1 import NullSweep
from bench.workloads.w2 import latent_agent
from bench.workloads.w3 import sandboxes
from bench.workloads.w4 import LANES, kill_and_resume
from bench.workloads.w5 import open_results
from bench.workloads.w8 import suite_sweep

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
_WORKLOADS = ("W1", "W2", "W3", "W4", "W5", "W8")
_BACKENDS = ("local", "bubblewrap", "container")


def main() -> int:
    """Measure and write the results. Fails when the store lacks anything, or a goal that was measured is missed."""
    args = _arguments()
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    peers = [PEERS[name](ROOT / "bench" / ".peers") for name in args.peers]
    for peer in peers:
        _say(f"installing {peer.name} {peer.version}")
        peer.install()
    work = Path(tempfile.mkdtemp(prefix="evalfleet-bench-"))
    bench = Bench(work, environment(work))
    try:
        figures = asyncio.run(_measure(args, peers, bench))
    finally:
        bench.close()
        if args.keep:
            _say(f"kept {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    judged = judge(figures, LANES)
    _write(args, figures, judged, peers)
    for item in judged:
        if item.value is not None:
            _say(f"{item.goal:4} {item.value:10.3f}  must {item.must:g}  {item.verdict:3} {item.what}")
    failed = any(item.verdict == "not" for item in judged)
    return 1 if failed and not args.report else 0


async def _measure(args: argparse.Namespace, peers: Sequence[Peer], bench: Bench) -> Figures:
    home = bench.work / "state"
    found: list[Figure] = []
    with warm_server(bench, home) as url:
        setting = Setting(
            bench=bench,
            scrub=machine.Scrubber(bench.work, ROOT),
            home=home,
            url=url,
            peers=peers,
            sizes=args.n,
            peer_n=args.peer_n,
            latent=args.latent,
            kill_n=args.kill_n,
            peer_kill_n=args.peer_kill_n,
            sandbox_n=args.sandbox_n,
            backends=args.backends,
            image=args.image,
        )
        sweep = NullSweep(setting)
        await sweep.warm_up()
        for number in range(1, args.rounds + 1):
            for workload in args.workloads:
                async for item in _round(workload, setting, sweep, number):
                    _say(
                        f"{number} {item.workload} {item.tool} {item.case} n={item.n}: {item.cpu:.2f} s CPU, "
                        f"{item.wall:.2f} s, load {item.load}"
                    )
                    found.append(item)
    return Figures(tuple(found))


def _round(workload: str, setting: Setting, sweep: NullSweep, number: int) -> AsyncIterator[Figure]:
    return {
        "W1": lambda: sweep.round(number),
        "W2": lambda: latent_agent(setting, number),
        "W3": lambda: sandboxes(setting, number),
        "W4": lambda: kill_and_resume(setting, number),
        "W5": lambda: open_results(setting, sweep, number),
        "W8": lambda: suite_sweep(setting, number),
    }[workload]()


def _write(args: argparse.Namespace, figures: Figures, judged: Sequence[Judged], peers: Sequence[Peer]) -> None:
    command = f"python -m bench {shlex.join(sys.argv[1:])}".strip()
    account = open_account()
    account.close()
    facts = machine.describe(type(account).name) | {"date": time.strftime("%Y-%m-%d", time.gmtime())}
    versions = machine.own_versions() | {peer.name: peer.version for peer in peers}
    facts["versions"] = ", ".join(f"{name} {number}" for name, number in versions.items())
    told = {
        "command": command,
        "facts": facts,
        "goals": [{**asdict(item), "value": item.value, "verdict": item.verdict} for item in judged],
        "figures": [asdict(item) for item in figures.items],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{args.out}.json").write_text(json.dumps(told, indent=1) + "\n")
    (RESULTS / f"{args.out}.md").write_text(render(figures, judged, facts, command))
    _say(f"wrote bench/results/{args.out}.md and .json")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure evalfleet beside its peers.")
    parser.add_argument("--workloads", type=_names(*_WORKLOADS), default=",".join(_WORKLOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--n", type=_numbers, default="1000,10000,100000", help="rows of W1 for evalfleet")
    parser.add_argument("--peer-n", type=int, default=1000, help="rows of W1, and so of W5, for peers")
    parser.add_argument("--latent", type=_pairs, default="1000x100,10000x1000", help="rows x lanes of W2")
    parser.add_argument("--kill-n", type=int, default=10_000, help="rows of W4 for evalfleet")
    parser.add_argument("--peer-kill-n", type=int, default=1000, help="rows of W4 for peers")
    parser.add_argument("--sandbox-n", type=int, default=500, help="rows of W3")
    parser.add_argument("--backends", type=_names(*_BACKENDS), default="local,bubblewrap", help="sandboxes of W3")
    parser.add_argument("--image", help="what the containers of W3 start from")
    parser.add_argument("--peers", type=_names(*PEERS), default=",".join(PEERS))
    parser.add_argument("--out", default="latest", help="name of the files in bench/results")
    parser.add_argument("--report", action="store_true", help="exit 0 whatever the goals say")
    parser.add_argument("--keep", action="store_true", help="keep the working folder")
    args = parser.parse_args()
    if "W5" in args.workloads and "W1" not in args.workloads:
        parser.error("W5 reads what W1 leaves behind: name both")
    return args


def _names(*known: str) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(part for part in text.split(",") if part)
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return tuple(name for name in known if name in chosen)

    return parse


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(part) for part in text.split(",")}))


def _pairs(text: str) -> tuple[tuple[int, int], ...]:
    return tuple((int(rows), int(lanes)) for rows, lanes in (part.split("x") for part in text.split(",")))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
