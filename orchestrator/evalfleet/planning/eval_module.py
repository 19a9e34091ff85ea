"""Evals written in Python: imports one eval file under a private name and reads what it exports."""

from __future__ import annotations

import ast
import linecache
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import decode_source, module_from_spec, spec_from_file_location
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, cast

from evalfleet.assertions.probed_asserts import with_probes
from evalfleet.errors import AuthoringError, Problem, describe
from evalfleet.model.definition import EvalDefinition
from evalfleet.model.ids import row_id, sha256
from evalfleet.planning.eval_ids import part_fault, shown

_DIGEST = "__evalfleet_source__"
#: How an eval file is named; or it is the file of a folder, whose prompt may stand beside it.
_SUFFIX, _FOLDER_ENTRY, _PROMPT = ".eval.py", "eval.py", "PROMPT.md"
_DEFINES = re.compile(r"\bdefine_(score_)?eval\b")


class PythonEvals:
    """`*.eval.py` and `<folder>/eval.py`. What several of a file are called stands behind the file's own id."""

    owns_folder = False

    def claims(self, path: PurePosixPath) -> bool:
        return path.name.endswith(_SUFFIX) or (path.name == _FOLDER_ENTRY and len(path.parts) > 1)

    def path_id(self, path: PurePosixPath) -> str:
        return path.parent.as_posix() if path.name == _FOLDER_ENTRY else path.as_posix().removesuffix(_SUFFIX)

    def find(self, project: Path, file: Path, definition_id: str) -> Iterator[EvalDefinition | Problem]:
        return self.load(project, file)

    def load(self, project: Path, file: Path) -> Iterator[EvalDefinition | Problem]:
        module = import_eval(project, file)
        if isinstance(module, Problem):
            yield module
            return
        fixture = file.parent if file.name == _FOLDER_ENTRY and (file.parent / _PROMPT).is_file() else None
        file_id = self.path_id(PurePosixPath(file.relative_to(project / "evals").as_posix()))
        yield from exported(module, file, file_id, fixture)


def import_eval(project: Path, file: Path) -> ModuleType | Problem:
    """The module of an eval file, imported under a unique private name, or what is wrong with it.

    The name lies in the package of the file's folder, so that relative imports work. Bytecode is neither read
    nor written: an edit within the same second must count. An unchanged file is imported once a process. Its plain
    asserts keep the values of their parts; those of what it imports are left as they are.
    """
    try:
        source = file.read_bytes()
    except OSError as error:
        return Problem("IMPORT_FAILED", f"can't be read: {error.strerror}", str(file))
    name = _module_name(project, file)
    known = sys.modules.get(name)
    digest = sha256(source)
    if known is not None and getattr(known, _DIGEST, None) == digest:
        return known
    module = module_from_spec(_spec(name, file))
    sys.modules[name] = module  # dataclasses and pydantic look their module up while it runs
    try:
        tree = ast.parse(source, str(file))
        replaced = _replaced(tree, file)
        linecache.cache[str(file)] = len(source), None, decode_source(source).splitlines(keepends=True), str(file)
        exec(compile(with_probes(tree), str(file), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an author's module may raise anything
        del sys.modules[name]
        return _import_problem(error, project, file)
    if replaced is not None:
        del sys.modules[name]
        return replaced
    setattr(module, _DIGEST, digest)
    return module


def _replaced(tree: ast.Module, file: Path) -> Problem | None:
    """An eval whose function another eval of the same name replaces: it would be lost without a sign."""
    lines: dict[str, int] = {}
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for decorator in node.decorator_list:
            if _DEFINES.search(ast.unparse(decorator)):
                if node.name in lines:
                    return _multiple(file, [lines[node.name], decorator.lineno])
                lines[node.name] = decorator.lineno
    return None


def exported(module: ModuleType, file: Path, file_id: str, fixture: Path | None) -> Iterator[EvalDefinition | Problem]:
    """The definitions that a module exports, with their ids: one, or the list or dict named `evals`."""
    alone = {id(value): value for value in vars(module).values() if isinstance(value, EvalDefinition)}
    many: Any = vars(module).get("evals")
    listed = _listed(many)
    if "evals" in vars(module) and not isinstance(many, EvalDefinition) and listed is None:
        message = f"`evals` is a list or dict of evals, not {type(many).__name__}"
        yield Problem("INVALID_EXPORT", message, str(file))
        return
    if listed is not None:
        alone = {key: value for key, value in alone.items() if all(value is not item for _, item in listed)}
        if not alone:
            yield from _named(listed, file, file_id, fixture)
            return
        lines = [_line(value) for _, value in listed if isinstance(value, EvalDefinition)][:1]
        yield _multiple(file, [*lines, *map(_line, alone.values())])
    elif len(alone) > 1:
        yield _multiple(file, [_line(value) for value in alone.values()])
    elif not alone:
        hint = "decorate a function with @define_eval, or list evals in a list named `evals`"
        yield Problem("INVALID_EXPORT", "the file defines no eval", str(file), hint=hint)
    else:
        yield replace(next(iter(alone.values())), id=file_id, fixture=fixture)


def _listed(many: Any) -> list[tuple[str, Any]] | None:
    """Pairs of key and item; a list is keyed by position, a dict sorted by key."""
    if isinstance(many, Mapping):
        pairs = cast("Mapping[Any, Any]", many).items()
        return [(key, item) for key, item in sorted(pairs, key=lambda pair: str(pair[0]))]
    if isinstance(many, Sequence) and not isinstance(many, (str, bytes)):
        return [(row_id(index), item) for index, item in enumerate(cast("Sequence[Any]", many))]
    return None


def _named(
    listed: list[tuple[str, Any]], file: Path, file_id: str, fixture: Path | None
) -> Iterator[EvalDefinition | Problem]:
    if not listed:
        yield Problem("INVALID_EXPORT", "`evals` is empty", str(file))
    for key, item in listed:
        if not isinstance(item, EvalDefinition):
            message = f"`evals[{key!r}]` is a {type(item).__name__}, not an eval"
            yield Problem("INVALID_EXPORT", message, str(file), hint="write define_eval(…)(function)")
        elif fault := part_fault(key) if isinstance(key, str) else "is not text":  # pyright: ignore[reportUnnecessaryIsInstance]
            yield Problem("INVALID_ID", f"the key {shown(str(key))} {fault}", str(file), _line(item))
        else:
            yield replace(item, id=f"{file_id}/{key}", fixture=fixture)


def _multiple(file: Path, lines: list[int | None]) -> Problem:
    known = sorted({line for line in lines if line is not None})
    message = f"more than one eval in a file, on lines {' and '.join(map(str, known))}"
    hint = "one eval a file, or a list or dict named `evals`"
    return Problem("MULTIPLE_DEFINITIONS", message, str(file), known[-1] if known else None, hint=hint)


def _line(definition: EvalDefinition) -> int | None:
    return definition.place.line if definition.place else None


def _module_name(project: Path, file: Path) -> str:
    relative = file.relative_to(project)
    private = f"_evalfleet_{re.sub(r'[^A-Za-z0-9]', '_', relative.name)}_{sha256(str(file).encode())[:10]}"
    parents = relative.parent.parts
    return ".".join([*parents, private]) if all(part.isidentifier() for part in parents) else private


def _spec(name: str, file: Path) -> ModuleSpec:
    spec = spec_from_file_location(name, file, loader=SourceFileLoader(name, str(file)))
    if spec is None:  # only for a loader that knows no spec, which this one does
        raise ImportError(f"no import spec for {file}")
    spec.cached = None
    return spec


def _import_problem(error: BaseException, project: Path, file: Path) -> Problem:
    code = error.code if isinstance(error, AuthoringError) else "IMPORT_FAILED"
    if isinstance(error, SyntaxError) and error.filename:
        message = f"syntax error: {error.msg}"
        return Problem(code, message, error.filename, error.lineno, error.offset)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(project)
    ]
    where, line = (frames[-1].filename, frames[-1].lineno) if frames else (str(file), None)
    what = describe(error) or "no message"
    message = what if isinstance(error, AuthoringError) else f"the import failed: {type(error).__name__}: {what}"
    return Problem(code, message.replace("\n", " "), where, line)
