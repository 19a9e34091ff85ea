"""Items and arms to Cases: the frozen denominator, in an order whose beginning represents the whole. Pure.

Planned order: repetitions outermost, then the selected Evals permuted by the experiment's seed, then the arms. So every
prefix of a run holds each arm equally often (±1 Eval), samples the Evals at random, and repeats none before all
were tried once. The permutation sorts by a hash of seed and content: the same rows come in the same order
however their file is sorted, and a larger `limit` extends a smaller one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b

from evalfleet.model.canonical import digest
from evalfleet.model.case import Case
from evalfleet.model.ids import sha256
from evalfleet.model.verdict import Style

#: More Cases than this are a slip of the pen; refused before any of them is made.
MAX_CASES = 10_000_000


@dataclass(frozen=True, slots=True)
class SelectedEval:
    """One Eval to run against every arm. `row` is the row's canonical JSON.

    `occurrence` counts, from 0, those before it with the same definition and content, so that a row which stands
    twice is two samples. `variants` is the choice of a scenario's variants, by step.
    """

    definition: str
    eval_id: str
    style: Style
    row: bytes | None = None
    occurrence: int = 0
    tags: tuple[str, ...] = ()
    external: bool = False
    variants: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ArmIdentity:
    """What an arm adds to a Case: its name, and per definition id the digest of all that shapes an attempt.

    `prints` is None when the arm's agent can't be fingerprinted.
    """

    name: str
    prints: Mapping[str, str] | None


def expand(arms: Sequence[ArmIdentity], evals: Iterable[SelectedEval], repetitions: int) -> Iterator[Case]:
    """Every Case in planned order, one at a time. `evals` is iterated once a repetition, in planned order."""
    ordinal = 0
    for repetition in range(repetitions):
        for selected in evals:
            shared = _shared(selected)
            for arm in arms:
                yield Case(
                    ordinal=ordinal,
                    arm=arm.name,
                    eval_id=selected.eval_id,
                    definition=selected.definition,
                    style=selected.style,
                    repetition=repetition,
                    content=sha256(f"{arm.name}\n{selected.definition}\n{shared}".encode()),
                    fingerprint=_fingerprint(arm, selected, shared),
                    row=selected.row,
                    variants=selected.variants,
                    tags=selected.tags,
                    external=selected.external,
                )
                ordinal += 1
        if not ordinal:  # nothing is selected, in no repetition
            return


def excess(evals: int, arms: int, repetitions: int) -> str | None:
    """Why there can't be so many Cases, with their factors; None when there can."""
    total = evals * arms * repetitions
    if total <= MAX_CASES:
        return None
    factors = f"evals {shown(evals)} × arms {shown(arms)} × repetitions {shown(repetitions)}"
    return f"{shown(total)} cases = {factors}; a run has at most {shown(MAX_CASES)}"


def shown(number: int) -> str:
    """A count as people read it; the size alone when it has too many digits for that."""
    return f"{number:,}" if number < 10**15 else f"{Decimal(number):.1e}"


def content_key(definition: str, row: bytes | None) -> int:
    """64 bits that identify a selected Eval by content, whatever its position."""
    return _hash64(definition.encode() + b"\n" + (row or b""))


def planned_order(keys: Sequence[int], seed: int) -> array[int]:
    """The indices of `keys` permuted by `seed`; equal keys stay together, in their order."""
    ranks = array("Q", map(ranking(seed), keys))
    return array("Q", sorted(range(len(keys)), key=ranks.__getitem__))


def ranking(seed: int) -> Callable[[int], int]:
    """Where a content key stands in the order of `seed`: keyed BLAKE2b, the same on every platform for ever."""
    salt = blake2b(str(seed).encode(), digest_size=32).digest()
    return lambda key: _hash64(key.to_bytes(8, "big"), salt)


def _hash64(data: bytes, key: bytes = b"") -> int:
    return int.from_bytes(blake2b(data, digest_size=8, key=key).digest(), "big")


def _shared(selected: SelectedEval) -> str:
    row = row_digest(selected.row, selected.variants)
    return f"{row}\n{selected.occurrence}" if selected.occurrence else row


def row_digest(row: bytes | None, variants: Mapping[str, str]) -> str:
    """What of a Case is its own among those of one definition: its row, or its choice of variants."""
    if variants:
        return digest(dict(variants))
    return "" if row is None else sha256(row)


def _fingerprint(arm: ArmIdentity, selected: SelectedEval, shared: str) -> str | None:
    if arm.prints is None:
        return None
    return sha256(f"{arm.prints[selected.definition]}\n{shared}".encode())
