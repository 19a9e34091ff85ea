"""`python -m bench.bare_commands N LANES`: the commands of W3 without a harness, each row in a directory of its own."""

import asyncio
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE

from bench.products import row_text, shell_commands


async def run(folder: str, *argv: str) -> str:
    process = await asyncio.create_subprocess_exec(*argv, cwd=folder, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    out, _ = await process.communicate()
    return out.decode()


async def answer(text: str, lanes: asyncio.Semaphore) -> bool:
    async with lanes:
        with tempfile.TemporaryDirectory() as folder:
            for argv in shell_commands(text):
                said = await run(folder, *argv)
            return said == f"{text}\n"


async def main(n: int, lanes: int) -> bool:
    places = asyncio.Semaphore(lanes)
    return all(await asyncio.gather(*(answer(row_text(index), places) for index in range(n))))


sys.exit(0 if asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]))) else 1)
