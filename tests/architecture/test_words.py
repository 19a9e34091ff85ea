"""What the product says to people keeps to the glossary: a thing is called by its own name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.source import ROOT, Source, product_sources

#: Words of the glossary's Avoid column that have no other meaning in a message of ours.
NEVER_SAID = ("sample", "test case", "trial", "rollout", "invocation", "solver", "master", "runner", "blob cache")
_SAID = re.compile(rf"\b({'|'.join(NEVER_SAID)})s?\b", re.IGNORECASE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def messages(source: Source) -> Iterator[ast.Constant]:
    """Texts of several words; docstrings only of the commands, whose help they are."""
    documentation: set[ast.AST] = set()
    if "/cli/commands/" not in source.path:
        documented = (node for node in ast.walk(source.tree) if isinstance(node, _DOCUMENTED))
        documentation = {node.body[0].value for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(source.tree):
        if node not in documentation and isinstance(node, ast.Constant) and " " in str(node.value):
            yield node


def misnamed(source: Source) -> Iterator[str]:
    for node in messages(source):
        if found := _SAID.search(str(node.value)):
            yield f"{source.path}:{node.lineno} says {found[0]!r}"


def test_no_message_uses_a_word_that_the_glossary_avoids() -> None:
    problems = [problem for source in product_sources() for problem in misnamed(source)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ('def f():\n    """No sample is one."""\n    raise ValueError("0 samples selected")', 1),
        ('def f():\n    """No sample is one."""\n    return f"{1} trial of it"', 1),
        ('name = "sample"', 0),
        ('said = "no case is selected"', 0),
    ],
)
def test_the_rule_sees_what_it_forbids(text: str, problems: int) -> None:
    assert len(list(misnamed(Source("orchestrator/evalfleet/x.py", "evalfleet.x", text)))) == problems


def test_the_words_are_the_glossarys() -> None:
    glossary = (ROOT / "GLOSSARY.md").read_text(encoding="utf-8")
    avoided = {word for row in re.findall(r"\| ([^|]+) \|$", glossary, re.MULTILINE) for word in row.split(", ")}
    assert set(NEVER_SAID) <= avoided
