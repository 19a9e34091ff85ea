from evalfleet import Dataset, T, define_eval, equals


@define_eval(dataset=Dataset.jsonl("sums.jsonl"))
async def sums(t: T, row: dict[str, str]) -> None:
    t.check((await t.send(row["ask"])).reply, equals(row["answer"]))
