"""`python -m evalfleet.api.shipped`: carries the run out that was shipped with the project in this directory.

It runs as a job on the cluster, which it joins; the record store and every secret are what the cluster's
environment says. Exits 0 when the run has ended, however it was judged.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from evalfleet.api.package import read_blueprint
from evalfleet.api.running import Place, reaching, resumed_claim
from evalfleet.api.session import Session
from evalfleet.errors import ConfigurationError, EvalfleetError, describe
from evalfleet.randomness import SystemRandom
from evalfleet.settings import Settings


async def carry(project: Path, workers: int, lanes: int, steal: int) -> None:
    """Claim the run and carry it out on the Ray that this process is a job of."""
    settings = Settings.from_environment()
    if settings.database_url is None:
        raise ConfigurationError("EVALFLEET_DATABASE_URL is not set in the environment of this cluster")
    blueprint = read_blueprint(project)
    session = await Session.open(settings)
    try:
        info = await session.reader.find_run(blueprint.run)
        here = replace(blueprint, database_url=session.url, state_dir=str(settings.state_dir))
        place = Place(address=settings.ray_address or "auto", workers=workers or None, lanes=lanes or None)
        async with reaching(place, settings) as venue:
            await venue.carry_out(here, resumed_claim(info, SystemRandom(), steal=bool(steal)), None)
    finally:
        await session.close()


if __name__ == "__main__":
    try:
        asyncio.run(carry(Path.cwd(), *map(int, sys.argv[1:4])))
    except EvalfleetError as error:
        sys.stderr.write(f"{describe(error)}\n")
        sys.exit(1)
