"""Sizes and names: a module of 400 lines, a function of 60, a signature of 6; no drawer for odds and ends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.architecture.source import ROOT, Source, product_sources

MODULE_LINES, FUNCTION_LINES, PARAMETERS = 400, 60, 6

#: What may be larger, and why. A key is `path` or `path::function`.
EXCEPTIONS: dict[str, str] = {}

BANNED_MODULE_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "base"}

GLOSSARY_ROW = re.compile(r"^\| \*\*(.+?)\*\* \|.*\| ([^|]+) \|$", re.MULTILINE)


@cache
def avoided() -> dict[str, str]:
    """Class names made of the glossary's Avoid column, each with the term that it has instead."""
    rows = GLOSSARY_ROW.findall((ROOT / "GLOSSARY.md").read_text(encoding="utf-8"))
    words = {camel(word): term for term, avoid in rows for word in avoid.split(", ")}
    terms = {camel(part) for term, _ in rows for part in term.split(", ")}
    return {word: term for word, term in words.items() if word not in terms}


def camel(words: str) -> str:
    return "".join(word.capitalize() for word in words.split())


def too_long(source: Source) -> Iterator[tuple[str, str]]:
    lines = source.text.count("\n")
    if lines > MODULE_LINES:
        yield source.path, f"{lines} lines"
    for function in source.functions:
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES:
            yield f"{source.path}::{function.name}", f"{length} lines"


def too_many_parameters(source: Source) -> Iterator[tuple[str, str]]:
    for function in source.functions:
        arguments = function.args
        named = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        count = len([name for name in named if name not in ("self", "cls")])
        if count > PARAMETERS:
            yield f"{source.path}::{function.name}", f"{count} parameters"


def badly_named(source: Source) -> Iterator[tuple[str, str]]:
    banned = BANNED_MODULE_NAMES.intersection(part.strip("_") for part in source.module.split("."))
    if banned:
        yield source.path, f"a module called {banned.pop()} says nothing about what is in it"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and node.name in avoided():
            yield f"{source.path}::{node.name}", f"the glossary says {avoided()[node.name]}"


def violations() -> dict[str, str]:
    rules = (too_long, too_many_parameters, badly_named)
    return {where: what for source in product_sources() for rule in rules for where, what in rule(source)}


def test_every_module_function_and_signature_keeps_its_budget() -> None:
    problems = [f"{where}: {what}" for where, what in violations().items() if where not in EXCEPTIONS]
    assert not problems, "\n".join(problems)


def test_every_exception_is_still_needed() -> None:
    assert [where for where in EXCEPTIONS if where not in violations()] == []


def test_the_rules_see_what_they_forbid() -> None:
    long_function = "def f(self, a, b, c, *, d, e, g, h):\n" + "    a = b\n" * FUNCTION_LINES
    source = Source("x/utils.py", "x.utils", long_function + "class Sample: ...\n" + "\n" * MODULE_LINES)
    assert {where for where, _ in too_long(source)} == {"x/utils.py", "x/utils.py::f"}
    assert list(too_many_parameters(source)) == [("x/utils.py::f", "7 parameters")]
    assert {where for where, _ in badly_named(source)} == {"x/utils.py", "x/utils.py::Sample"}
