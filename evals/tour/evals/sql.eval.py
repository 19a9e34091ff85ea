"""A list of evals made of rows: they are called sql/0000 and sql/0001. With a dataset the rows may stand in a file."""

from evalfleet import EvalDefinition, T, define_eval, equals

ROWS = [
    ("Counts", "How many orders are there?", "SELECT count(*) FROM orders"),
    ("Filters and sorts", "Which orders are open, oldest first?", "SELECT * FROM orders WHERE open ORDER BY placed"),
]


def asked(task: str, prompt: str, expected: str) -> EvalDefinition:
    @define_eval(description=task, tags=["sql"])
    async def sql(t: T) -> None:
        turn = await t.send(prompt)
        t.check(turn.reply, equals(expected))

    return sql


evals = [asked(*row) for row in ROWS]
