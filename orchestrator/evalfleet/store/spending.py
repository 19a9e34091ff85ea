"""What a run has spent, by arm: known, possible and reserved, as its intents and attempts say."""

from __future__ import annotations

from dataclasses import dataclass

from evalfleet.model.money import Money, Spending
from evalfleet.store import spending_sql
from evalfleet.store.connection import Connection


@dataclass(frozen=True, slots=True)
class ArmSpending:
    """What attempts of an arm have spent, and what those that have not ended may spend."""

    spending: Spending
    reserved: Money


async def run_spending(connection: Connection, run_key: int) -> dict[str, ArmSpending]:
    """By the arm's name; an arm without an attempt is left out."""
    cursor = await connection.execute(spending_sql.SPENDING, {"run_key": run_key}, prepare=False)
    return {
        name: ArmSpending(Spending(Money(*figures[:2]), Money(*figures[2:4])), Money(*figures[4:]))
        for name, *figures in await cursor.fetchall()
    }
