"""Plain asserts compiled so that the values of their parts are still known when they fail. PURE.

Each part of an asserted expression is kept in a local variable as it is evaluated, `len(x) > 2` becoming
`(@0 := len((@1 := x))) > 2`: in the same order, as often, and on the same lines as before. Only the asserts in
functions are compiled so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final, cast

#: What a part holds that was not evaluated, since an `and`, an `or` or a chain ended before it.
UNSET: Final = ("@",)

_NOT_SHOWN = (ast.Constant, ast.Starred)


def probe(number: int) -> str:
    """The variable of the part of that number: a name that nobody can write."""
    return f"@{number}"


def parts(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of an asserted expression whose values are kept, in a fixed order: what is compared, and inside it."""
    match test:
        case ast.BoolOp(values=operands):
            for operand in operands:
                yield from parts(operand)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from parts(operand)
        case ast.Compare(left=left, comparators=comparators):
            for operand in (left, *comparators):
                yield from _value(operand)
        case _:
            yield from _value(test)


def _value(node: ast.expr) -> Iterator[ast.expr]:
    """A value and those it is made of. What has a scope of its own, or chooses, is not looked into."""
    if isinstance(node, _NOT_SHOWN):
        return
    if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
        yield node
        yield from _inside(node.value)
        return
    yield node
    yield from _inside(node)


def _inside(node: ast.expr) -> Iterator[ast.expr]:
    inner: list[ast.expr] = []
    match node:
        case ast.Call(func=function, args=arguments, keywords=keywords):
            inner = [function.value] if isinstance(function, ast.Attribute) else []
            inner += [*arguments, *(keyword.value for keyword in keywords)]
        case ast.Attribute(value=value) | ast.UnaryOp(operand=value):
            inner = [value]
        case ast.Subscript(value=value, slice=place):
            inner = [value] if isinstance(place, (ast.Slice, ast.Tuple)) else [value, place]
        case ast.BinOp(left=left, right=right):
            inner = [left, right]
        case ast.BoolOp() | ast.Compare():
            yield from parts(node)
        case _:
            pass
    for each in inner:
        yield from _value(each)


def with_probes(tree: ast.Module) -> ast.Module:
    """`tree`, changed in place so that its asserts in functions keep the values of their parts."""
    return ast.fix_missing_locations(_Probing().visit(tree))


class _Probing(ast.NodeTransformer):
    def __init__(self) -> None:
        self._in_function = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._scope(node, True)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._scope(node, True)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._scope(node, False)

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        kept = list(parts(node.test)) if self._in_function else []
        if not kept:
            return [node]
        names = {id(part): probe(number) for number, part in enumerate(kept)}
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names.values()]
        cleared = ast.Assign(targets, ast.Constant(cast("Any", UNSET)))
        node.test = cast("ast.expr", _Keeping(names).visit(node.test))
        return [ast.copy_location(cleared, node), node]

    def _scope(self, node: ast.AST, is_function: bool) -> ast.AST:
        before, self._in_function = self._in_function, is_function
        self.generic_visit(node)
        self._in_function = before
        return node


class _Keeping(ast.NodeTransformer):
    def __init__(self, names: dict[int, str]) -> None:
        self._names = names

    def visit(self, node: ast.AST) -> ast.AST:
        name = self._names.get(id(node))
        inside = self.generic_visit(node)
        if name is None or not isinstance(inside, ast.expr):
            return inside
        return ast.copy_location(ast.NamedExpr(ast.Name(name, ast.Store()), inside), node)
