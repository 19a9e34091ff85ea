"""What every workload is given."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.machine import Scrubber
from bench.measure import Bench, Measurement
from bench.peers import Peer
from bench.peers.base import Command


@dataclass(frozen=True, slots=True)
class Setting:
    """One bench: where it works, what it measures against, and how large.

    `home` is the state folder whose embedded server is warm at `url`; `sizes` are evalfleet's rows in ascending
    order, `peer_n` the peers'. `latent` are (rows, lanes) of W2, `kill_n` and `peer_kill_n` rows of W4. W3 has
    `sandbox_n` rows in each of `backends`, containers starting from `image`.
    """

    bench: Bench
    scrub: Scrubber
    home: Path
    url: str
    peers: Sequence[Peer]
    sizes: Sequence[int]
    peer_n: int
    latent: Sequence[tuple[int, int]]
    kill_n: int
    peer_kill_n: int
    sandbox_n: int
    backends: Sequence[str]
    image: str | None

    @property
    def env(self) -> dict[str, str]:
        return {"EVALFLEET_HOME": str(self.home)}

    def fresh(self, *names: object) -> Path:
        """A place in the working folder where nothing stands, for one command to make something."""
        path = self.bench.work.joinpath(*map(str, names))
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def run(self, command: Command) -> Measurement:
        """Measure a peer's command."""
        return self.bench.run(command.argv, command.cwd or self.bench.work, command.env)

    def shown(self, argv: Sequence[str]) -> str:
        """A command line as it is published."""
        return self.scrub(" ".join(argv))

    def peer(self, name: str) -> Peer | None:
        return next((peer for peer in self.peers if peer.name == name), None)


def folder_size(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
