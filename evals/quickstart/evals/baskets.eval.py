from pydantic import BaseModel

from evalfleet import Dataset, T, define_eval, includes


class Basket(BaseModel):
    name: str
    question: str
    total: str


@define_eval(
    description="Adds up what a basket costs",
    tags=["prices"],
    dataset=Dataset.jsonl("data/baskets.jsonl", id="name", model=Basket),
)
async def baskets(t: T, row: Basket) -> None:
    turn = await t.send(row.question)
    turn.succeeded()
    turn.called_tool("price_of")
    turn.no_failed_actions()
    t.check(turn.reply, includes(f"€{row.total}")).label("names the right total")
