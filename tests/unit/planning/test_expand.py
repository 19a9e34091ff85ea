"""The frozen denominator: deterministic, free of duplicates, identified by content."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from evalfleet.model.canonical import canonical_bytes
from evalfleet.model.case import Case
from evalfleet.model.verdict import Style
from evalfleet.planning.expand import MAX_CASES, ArmIdentity, SelectedEval, content_key, excess, expand, planned_order

names = st.text("abcd/", min_size=1, max_size=4)
contents = st.lists(st.none() | st.dictionaries(st.sampled_from("ab"), st.integers(0, 2), max_size=2), max_size=8)
arm_lists = st.lists(names, min_size=1, max_size=3, unique=True)
seeds = st.integers(-(10**30), 10**30)


def arranged(rows: list[object], seed: int, definition: str = "d") -> list[SelectedEval]:
    """Rows as a scan arranges them: permuted, with occurrences counted."""
    encoded = [None if row is None else canonical_bytes(row) for row in rows]
    keys = [content_key(definition, row) for row in encoded]
    seen: Counter[int] = Counter()
    result = []
    for index in planned_order(keys, seed):
        result.append(SelectedEval(definition, f"{definition}/{index}", Style.PASS, encoded[index], seen[keys[index]]))
        seen[keys[index]] += 1
    return result


def identities(names_of_arms: list[str]) -> list[ArmIdentity]:
    return [ArmIdentity(name, {"d": f"print of {name}"}) for name in names_of_arms]


def cases(arms: list[str], rows: list[object], seed: int, repetitions: int = 2) -> list[Case]:
    return list(expand(identities(arms), arranged(rows, seed), repetitions))


@given(arm_lists, contents, seeds, st.integers(1, 3))
def test_expansion_is_deterministic_complete_and_free_of_duplicates(
    arms: list[str], rows: list[object], seed: int, repetitions: int
) -> None:
    found = cases(arms, rows, seed, repetitions)
    assert found == cases(arms, rows, seed, repetitions)
    assert [case.ordinal for case in found] == list(range(len(arms) * len(rows) * repetitions))
    assert len({(case.arm, case.eval_id, case.repetition) for case in found}) == len(found)
    assert len({(case.content, case.repetition) for case in found}) == len(found)
    assert len({(case.fingerprint, case.repetition) for case in found}) == len(found)


@given(arm_lists, contents.flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))), seeds)
def test_shuffling_rows_changes_no_identity_and_no_order(
    arms: list[str], orders: tuple[list[object], list[object]], seed: int
) -> None:
    before, after = (cases(arms, rows, seed) for rows in orders)
    assert [(c.content, c.fingerprint) for c in before] == [(c.content, c.fingerprint) for c in after]


@given(contents.filter(bool), st.data())
def test_changing_one_row_changes_the_identity_of_that_row_only(rows: list[object], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    changed = [*rows[:index], {"new": True}, *rows[index + 1 :]]
    before = Counter(case.content for case in cases(["a"], rows, 0, 1))
    after = Counter(case.content for case in cases(["a"], changed, 0, 1))
    assert (before - after).total() == (after - before).total() == 1


@given(arm_lists, contents, seeds)
def test_every_beginning_holds_each_arm_equally_often(arms: list[str], rows: list[object], seed: int) -> None:
    found = cases(arms, rows, seed)
    for end in range(len(found) + 1):
        counts = Counter(case.arm for case in found[:end])
        assert max(counts.values(), default=0) - min((counts[arm] for arm in arms), default=0) <= 1


def test_no_eval_is_repeated_before_all_were_tried_once() -> None:
    found = cases(["a", "b"], [{"n": n} for n in range(5)], 7, 3)
    assert [case.repetition for case in found] == [0] * 10 + [1] * 10 + [2] * 10


def test_another_seed_is_another_order_of_the_same_evals() -> None:
    rows: list[object] = [{"n": n} for n in range(50)]
    one, two = cases(["a"], rows, 1, 1), cases(["a"], rows, 2, 1)
    assert [case.content for case in one] != [case.content for case in two]
    assert {case.content for case in one} == {case.content for case in two}


def test_the_beginning_samples_all_evals_not_the_first_file() -> None:
    keys = [content_key("first", str(n).encode()) for n in range(500)]
    keys += [content_key("second", str(n).encode()) for n in range(500)]
    beginning = list(islice(planned_order(keys, 0), 100))
    assert 30 < sum(index < 500 for index in beginning) < 70


def test_identity_is_over_arm_definition_and_content() -> None:
    def content(arm: str, definition: str, row: bytes | None) -> str:
        selected = [SelectedEval(definition, f"{definition}/x", Style.PASS, row)]
        return next(expand([ArmIdentity(arm, None)], selected, 1)).content

    base = content("a", "d", b"{}")
    assert base == content("a", "d", b"{}")
    assert (
        len(
            {
                base,
                content("b", "d", b"{}"),
                content("a", "e", b"{}"),
                content("a", "d", b"[]"),
                content("a", "d", None),
            }
        )
        == 5
    )


def test_an_arm_that_can_not_be_fingerprinted_has_no_fingerprint() -> None:
    assert [case.fingerprint for case in expand([ArmIdentity("a", None)], arranged([{}], 0), 1)] == [None]


def test_expansion_holds_one_case_at_a_time() -> None:
    selected = SelectedEval("d", "d", Style.PASS)
    endless = expand(identities(["a"]), [selected], 10**9)
    assert [case.repetition for case in islice(endless, 3)] == [0, 1, 2]


def test_there_may_be_as_many_cases_as_the_limit_and_not_one_more() -> None:
    assert excess(MAX_CASES, 1, 1) is excess(1, 1, MAX_CASES) is excess(100, 1000, 100) is excess(0, 3, 10**30) is None
    assert excess(MAX_CASES + 1, 1, 1) is not None
