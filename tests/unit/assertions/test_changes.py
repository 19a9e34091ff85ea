"""What the agent's windows say of each criterion: a table of three values, as `docs/semantics.md` has it."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.assertions.attributed import changed_paths, diff_text, size_text
from evalfleet.assertions.change_criteria import FileChanged, FileDeleted, NoChanges, NotInDiff, unwanted
from evalfleet.assertions.criteria import check_value
from evalfleet.assertions.matchers import equals, excludes, includes, pattern, satisfies, similarity
from evalfleet.assertions.patch_text import changed_text
from evalfleet.errors import AuthoringError
from evalfleet.model.changes import Attribution, Change, ChangedBy, ChangeKind, FileFacts, Window
from evalfleet.model.path_pattern import path_pattern

PATCH = b"""\
diff --git a/src/app.py b/src/app.py
index 1..2 100644
--- a/src/app.py
+++ b/src/app.py
@@ -1,4 +1,5 @@ def secret_in_the_heading():
 kept = "token"
-old = 1
+new = 1
+more = 2
 kept = 2
-last
\\ No newline at end of file
+last
"""


def change(path: str, kind: ChangeKind = ChangeKind.MODIFIED, **options: Any) -> Change:
    return Change(path=path, kind=kind, **options)


def seen(*changes: Change, by: ChangedBy = ChangedBy.AGENT, **options: Any) -> Attribution:
    error = options.pop("error", None)
    window = Window(label="turn1", by=by, before="a", after="b", changes=changes, **options)
    return Attribution(windows=(window,), error=error)


APP = change("src/app.py", patch=PATCH)
GONE = change("gone.py", ChangeKind.DELETED)
NEW, MODE, TYPE = (change(f"{kind}.sh", kind) for kind in (ChangeKind.ADDED, ChangeKind.MODE, ChangeKind.TYPE))
ALL, NONE = seen(APP, GONE), seen()
CUT = {"omitted": 3}
BROKEN = Attribution(error="turn1: git is gone")

CHANGED, OTHER = FileChanged(path_pattern("src/*.py", "")), FileChanged(path_pattern("*.md", ""))
DELETED, KEPT = FileDeleted(path_pattern("gone.py", "")), FileDeleted(path_pattern("src/app.py", ""))
SECRET, NEWS = NotInDiff(unwanted("token")), NotInDiff(unwanted(pattern(r"new = \d")))

TABLE = [
    # criterion, what was seen, result
    (CHANGED, ALL, "matched"),
    (CHANGED, seen(APP, **CUT), "matched"),
    (CHANGED, NONE, "mismatched"),
    (CHANGED, seen(**CUT), "unavailable"),
    (CHANGED, seen(unread=("x",)), "unavailable"),
    (CHANGED, BROKEN, "unavailable"),
    (CHANGED, seen(APP, error="turn2: git is gone"), "matched"),
    (CHANGED, seen(APP, by=ChangedBy.EVAL), "mismatched"),
    (OTHER, ALL, "mismatched"),
    (FileChanged(path_pattern("gone.py", "")), ALL, "mismatched"),
    *((FileChanged(path_pattern(each.path, "")), seen(each), "matched") for each in (NEW, MODE, TYPE)),
    (FileChanged(path_pattern("x.log", "")), seen(change("x.log", ignored=True)), "matched"),
    (DELETED, ALL, "matched"),
    (DELETED, seen(GONE, **CUT), "matched"),
    (DELETED, seen(**CUT), "unavailable"),
    (DELETED, NONE, "mismatched"),
    (KEPT, ALL, "mismatched"),
    (NoChanges(), NONE, "matched"),
    (NoChanges(), ALL, "mismatched"),
    (NoChanges(), seen(APP, **CUT), "mismatched"),
    (NoChanges(), seen(**CUT), "unavailable"),
    (NoChanges(), BROKEN, "unavailable"),
    (NoChanges(), seen(APP, by=ChangedBy.EVAL), "matched"),
    (NoChanges(), seen(APP, by=ChangedBy.EVAL, omitted=1), "matched"),
    (NoChanges(), seen(change("x.log", ignored=True)), "mismatched"),
    (SECRET, ALL, "matched"),
    (SECRET, NONE, "matched"),
    (SECRET, seen(**CUT), "unavailable"),
    (SECRET, BROKEN, "unavailable"),
    (SECRET, seen(change("token.txt")), "mismatched"),
    (SECRET, seen(APP, change("big", patch=None)), "unavailable"),
    (SECRET, seen(change("x.bin", binary=True, patch=b"GIT binary patch\ntoken")), "unavailable"),
    (SECRET, seen(change("token", **{"patch": None})), "mismatched"),
    (NEWS, ALL, "mismatched"),
    (NEWS, seen(APP, **CUT), "mismatched"),
    (NEWS, seen(APP, change("big", patch=None)), "mismatched"),
    (NEWS, seen(APP, by=ChangedBy.EVAL), "matched"),
    (NotInDiff(unwanted("secret_in_the_heading")), ALL, "matched"),
    (NotInDiff(unwanted("old = 1")), ALL, "mismatched"),
    (NotInDiff(unwanted("new = 1\nmore = 2")), ALL, "mismatched"),
    (NotInDiff(unwanted("old = 1\nnew")), ALL, "matched"),
    (NotInDiff(unwanted(satisfies("breaks", lambda text: 1 / 0 > 1))), ALL, "errored"),
]


@pytest.mark.parametrize(("criterion", "found", "result"), TABLE)
def test_the_table(criterion: Any, found: Attribution, result: str) -> None:
    outcome = criterion.evaluate(found)
    assert outcome.result.value == result
    assert (outcome.reason is not None) is (result in ("unavailable", "errored"))


def test_reasons_say_what_is_missing() -> None:
    assert CHANGED.evaluate(seen(**CUT)).reason == "diff:partial (3 beyond the limits)"
    assert CHANGED.evaluate(seen(unread=("x", "y"))).reason == "diff:partial (2 unreadable: x)"
    assert NoChanges().evaluate(BROKEN).reason == "diff:unavailable (turn1: git is gone)"
    assert SECRET.evaluate(seen(change("big", patch=None))).reason == "diff:content-not-searched (big)"


def test_a_result_shows_paths_and_places() -> None:
    assert NoChanges().evaluate(ALL).actual == {"changes": ["modified src/app.py", "deleted gone.py"]}
    assert NEWS.evaluate(ALL).actual == [{"path": "src/app.py", "added": "new = 1\nmore = 2\n"}]


@pytest.mark.parametrize("text", ["", 3, similarity("x")])
def test_what_can_not_be_looked_for(text: Any) -> None:
    with pytest.raises(AuthoringError):
        unwanted(text)


# --- values --------------------------------------------------------------------------------------------------------


async def test_values_carry_their_gap_into_a_check() -> None:
    whole, cut = changed_paths(ALL), changed_paths(seen(APP, **CUT))
    assert (await check_value(whole, equals(["gone.py", "src/app.py"]))).holds
    assert (await check_value(cut, equals(["src/app.py"]))).result.value == "unavailable"
    text, partial = diff_text(seen(APP)), diff_text(seen(APP, **CUT))
    assert text == PATCH.decode()
    assert (await check_value(text, excludes("rain"))).holds
    assert (await check_value(partial, excludes("rain"))).result.value == "unavailable"
    assert (await check_value(partial, includes("new = 1"))).holds


def test_the_text_says_what_was_not_kept() -> None:
    facts = FileFacts(0o100644, 20 << 20, "b")
    big = change("big.bin", before=facts, after=facts, binary=True, patch=None)
    assert diff_text(seen(big)) == "# modified big.bin: binary, 20 MB, not kept\n"
    assert diff_text(seen(change("\udcff", patch=b"\xff"))) == "\ufffd"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1, "1 byte"), (1536, "1.5 KB"), (20 << 20, "20 MB"), (3 << 30, "3 GB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


# --- patches -------------------------------------------------------------------------------------------------------


def test_only_what_was_added_and_removed_is_text_of_a_patch() -> None:
    assert list(changed_text(PATCH)) == [
        ("removed", "old = 1\n"),
        ("added", "new = 1\nmore = 2\n"),
        ("removed", "last\n"),
        ("added", "last\n"),
    ]


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (b"@@ -0,0 +1,2 @@\n+a\r\n+b\rc\n", [("added", "a\r\nb\rc\n")]),
        (b"@@ -1 +1 @@\n---- a/x\n+++++ b/x\n", [("removed", "--- a/x\n"), ("added", "++++ b/x\n")]),
        (b"@@ -1 +0,0 @@\n-\xff\n", [("removed", "\ufffd\n")]),
        (b"old mode 100644\nnew mode 100755\n", []),
        (b"@@ -1,2 +1 @@\n a\n-b\n@@ -9 +8,2 @@\n c\n+d\n", [("removed", "b\n"), ("added", "d\n")]),
        (b"@@ -1 +1 @@\n-a\n+b\ndiff --git a/y b/y\n--- a/y\n+++ b/y\n", [("removed", "a\n"), ("added", "b\n")]),
    ],
)
def test_patches_of_every_form(body: bytes, texts: list[tuple[str, str]]) -> None:
    assert list(changed_text(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n" + body)) == texts
