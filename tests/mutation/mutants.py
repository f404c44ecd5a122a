"""The small changes, as edits of a syntax tree."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: which node, in the order of `sites`, and how it reads."""

    module: str
    number: int
    line: int
    where: str  # the function it is in, or an empty string
    before: str
    after: str

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What stays the same when lines move."""
        return self.module, self.where, self.before, self.after

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.where}  {self.before}  ->  {self.after}"


def changed(node: ast.AST) -> ast.AST | None:
    """*node* with its change, or None if there is none."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in COMPARISONS:
        new.ops[0] = COMPARISONS[type(new.ops[0])]()
    elif isinstance(new, ast.BinOp | ast.AugAssign) and type(new.op) in ARITHMETIC:
        new.op = ARITHMETIC[type(new.op)]()
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        return new.operand
    elif isinstance(new, ast.Constant) and type(new.value) is int:
        new.value += 1
    elif isinstance(new, ast.IfExp):
        new.body, new.orelse = new.orelse, new.body
    else:
        return None
    return new


class _Sites(ast.NodeTransformer):
    """Walks what can be mutated; replaces the node *wanted*, and notes it."""

    def __init__(self, wanted: int | None = None) -> None:
        self.wanted = wanted
        self.found: list[tuple[ast.AST, ast.AST, str]] = []
        self.inside: list[str] = []

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
            return node  # messages are not what is tested here
        new = changed(node)
        if new is not None:
            self.found.append((node, new, ".".join(self.inside)))
            if self.wanted == len(self.found) - 1:
                return ast.copy_location(new, node)
        return super().visit(node)  # type: ignore[no-any-return]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)  # type: ignore[assignment]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.inside.append(node.name)
        node.body = [self.visit(part) for part in node.body]  # type: ignore[misc]
        self.inside.pop()
        return node  # neither decorators nor annotations nor defaults

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value = self.visit(node.value)  # type: ignore[assignment]
        if not isinstance(node.slice, ast.Constant):  # fields of tuples by number: an error at once
            node.slice = self.visit(node.slice)  # type: ignore[assignment]
        return node


def sites(module: str, source: str) -> Iterator[Mutant]:
    """All mutants of *source*."""
    walk = _Sites()
    walk.visit(ast.parse(source))
    for number, (node, new, where) in enumerate(walk.found):
        yield Mutant(module, number, getattr(node, "lineno", 0), where, _text(node), _text(new))


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:70]


def mutated(source: str, number: int) -> ast.Module:
    """*source* with its mutant *number*."""
    walk = _Sites(number)
    tree = walk.visit(ast.parse(source))
    assert isinstance(tree, ast.Module)
    return ast.fix_missing_locations(tree)
