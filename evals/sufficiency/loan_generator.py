"""Writes the rows of `evals/data/loans.jsonl`: the same seed, the same rows.

python loan_generator.py evals/data/loans.jsonl
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

SEED, PER_PROFILE = 20_260_105, 4

TITLES = {
    "identity": "Identity card",
    "tax_return": "Tax return 2025",
    "premises": "Lease of the premises",
    "licence": "Trade licence",
    "cover": "Liability insurance policy",
    "statements": "Bank statements, last quarter",
}
RULES = {
    kind: "A document of this kind that names the applicant and has not expired. Two that disagree count as none. "
    "An answer by us or by the applicant in a message settles it."
    for kind in TITLES
}
OWNERS = ["Ines Okafor", "Jonas Wirth", "Mei Tanaka", "Rafael Duarte", "Sunniva Dahl", "Tomasz Lis"]
SHOPS = ["Bakery", "Bindery", "Bicycle Shop", "Nursery", "Print Works", "Tailor"]

Row = dict[str, Any]


def document(number: str, file: str, kind: str, holder: str, **more: Any) -> Row:
    return {
        "id": number,
        "file": file,
        "kind": kind,
        "title": TITLES[kind],
        "holder": holder,
        "expires": "2027-06-30",
        "marks": ["signed", "stamped"],
        **more,
    }


class Loan:
    """One row in the making: a complete file, from which a profile takes something away."""

    def __init__(self, number: int, profile: str, random: Random) -> None:
        self.file = f"F-{number:03d}"
        self.profile = profile
        self.random = random
        self.holder = random.choice(OWNERS)
        self.shop = f"{self.holder.split()[-1]} {random.choice(SHOPS)}"
        self.documents = [
            document(f"D-{number:03d}-{at}", self.file, kind, self.holder) for at, kind in enumerate(TITLES, start=1)
        ]
        self.messages: list[Row] = []
        self.gold: list[Row] = []
        self.script: list[Row] = []

    def pick(self, count: int) -> list[str]:
        return sorted(self.random.sample(sorted(TITLES), count))

    def drop(self, kind: str) -> Row:
        found = next(each for each in self.documents if each["kind"] == kind)
        self.documents.remove(found)
        return found

    def change(self, kind: str, **fields: Any) -> None:
        next(each for each in self.documents if each["kind"] == kind).update(fields)

    def lacks(self, *unmet: str, at: int | None = None) -> None:
        point: Row = {"decision": "request" if unmet else "approve", "unmet": sorted(unmet)}
        self.gold.append(point if at is None else {"at": at, **point})

    def row(self) -> Row:
        file = {"id": self.file, "applicant": self.holder, "business": self.shop, "status": "open", "seen_at": 0}
        return {
            "id": self.file.lower(),
            "profile": self.profile,
            "prompt": f"Please work on loan file {self.file}. Approve it if it is complete; otherwise ask for exactly "
            "what is missing and give the reason for each.",
            "snapshot": {
                "files": [file],
                "documents": self.documents,
                "messages": self.messages,
                "requirements": [{"id": kind, "title": TITLES[kind], "rule": RULES[kind]} for kind in TITLES],
            },
            "gold": self.gold,
            "script": self.script,
        }


def single_gap(loan: Loan) -> None:
    (kind,) = loan.pick(1)
    loan.drop(kind)
    loan.lacks(kind)


def multi_gap(loan: Loan) -> None:
    kinds = loan.pick(loan.random.choice([2, 3]))
    for kind in kinds:
        loan.drop(kind)
    loan.lacks(*kinds)


def contradictory(loan: Loan) -> None:
    (kind,) = loan.pick(1)
    other = loan.random.choice([name for name in OWNERS if name != loan.holder])
    loan.documents.append(document(f"D-{loan.file[2:]}-7", loan.file, kind, other))
    loan.lacks(kind)


def expired(loan: Loan) -> None:
    (kind,) = loan.pick(1)
    loan.change(kind, expires=f"2025-{loan.random.randint(1, 12):02d}-28")
    loan.lacks(kind)


def already_answered(loan: Loan) -> None:
    (kind,) = loan.pick(1)
    loan.drop(kind)
    text = f"We hold the {TITLES[kind].lower()} from the loan of last year; it is still valid."
    loan.messages.append({"id": "M-0900", "file": loan.file, "direction": "in", "text": text, "settles": kind})
    loan.lacks()


def multi_turn(loan: Loan) -> None:
    first, second = loan.pick(2)
    papers = {kind: loan.drop(kind) for kind in (first, second)}
    loan.lacks(first, second, at=1)
    loan.lacks(second, at=2)
    loan.lacks()

    def brings(kind: str, **more: Any) -> Row:
        writes = [{"collection": "documents", "record": papers[kind]}]
        return {"id": f"brings-{kind}", "supplies": [kind], "writes": writes, **more}

    loan.script = [
        brings(first, asked=[first, second], how="all", once=True, reply="Here is one of them; I look for the other."),
        brings(second, asked=[second], how="any", supplied=[first], once=True, reply="I found the other one."),
        {"id": "nothing", "fallback": True, "reply": "I have sent you all that I can find about this."},
    ]


PROFILES: dict[str, Callable[[Loan], None]] = {
    "single-gap": single_gap,
    "multi-gap": multi_gap,
    "contradictory": contradictory,
    "expired": expired,
    "already-answered": already_answered,
    "multi-turn": multi_turn,
}


def rows(seed: int = SEED, per_profile: int = PER_PROFILE) -> list[Row]:
    """The rows of a seed, profile by profile."""
    random, found = Random(seed), []
    for profile, shape in PROFILES.items():
        for _ in range(per_profile):
            loan = Loan(len(found) + 1, profile, random)
            shape(loan)
            found.append(loan.row())
    return found


if __name__ == "__main__":
    lines = [json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows()]
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n", encoding="utf-8")
