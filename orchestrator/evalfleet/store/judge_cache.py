"""Replies that judges gave before, found among the recorded calls: the calls are their own cache."""

from __future__ import annotations

from evalfleet.model.judge import JudgeReply
from evalfleet.store.connection import Connection
from evalfleet.store.lifeline import Lifeline

#: Seconds to wait for a store that is away: asking the model costs less than waiting longer.
_PATIENCE = 2.0

# the oldest, so that every later call gets the same one
_FIND = """
SELECT reply FROM judge_calls
WHERE request = %(request)s AND repetition = %(repetition)s AND vote = %(vote)s AND code IS NULL AND NOT cached
ORDER BY started_at LIMIT 1
"""


class PostgresJudgeCache:
    """Looks replies up over one connection, made when the first is wanted."""

    def __init__(self, url: str) -> None:
        self._lifeline = Lifeline(url, _prepare, _PATIENCE)

    async def find(self, request: str, repetition: int, vote: int) -> JudgeReply | None:
        """What a model answered to this draw of a request, in any run; None when none did.

        Raises StoreError when the store can't be asked.
        """
        given = {"request": bytes.fromhex(request), "repetition": repetition, "vote": vote}

        async def work(connection: Connection) -> bytes | None:
            row = await (await connection.execute(_FIND, given)).fetchone()
            return None if row is None else row[0]

        reply = await self._lifeline.run(work)
        return None if reply is None else JudgeReply(text=reply.decode("utf-8", "surrogatepass"), tries=0)

    async def close(self) -> None:
        await self._lifeline.close()


async def _prepare(connection: Connection) -> None:
    await connection.execute("SET default_transaction_read_only = on")
