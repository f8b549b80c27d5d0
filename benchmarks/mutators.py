"""Small changes to a right answer, one at a time, which the hidden tests must notice.

`mutants` takes the text of an answer and returns every text that differs from it by one change of the syntax tree.
Docstrings and error messages stay as they are, and so do device arguments, since tests run on one device. Names change
only as `RELATED` and `REAL` say.
"""

import ast
import copy
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

OPERATORS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add, ast.Mult),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div, ast.Mod),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult, ast.Div),
    ast.MatMult: (ast.Mult,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
# Functions, methods and dtypes that people mistake for each other.
RELATED = {
    "min": ("max",),
    "max": ("min", "mean"),
    "sin": ("cos",),
    "cos": ("sin",),
    "floor": ("ceil", "round"),
    "ceil": ("floor", "round"),
    "any": ("all",),
    "all": ("any",),
    "zeros": ("ones",),
    "ones": ("zeros",),
    "stack": ("cat",),
    "cat": ("stack",),
    "triu": ("tril",),
    "tril": ("triu",),
    "log": ("log2",),
    "sum": ("mean",),
    "mean": ("sum",),
    "abs": ("square", "neg"),
    "randn": ("rand",),
    "eval": ("train",),
    "float64": ("float32", "float16"),
    "float32": ("float16",),
    "double": ("float",),
    "float": ("double", "half"),
}
# Arguments that need not be whole numbers: a mutant truncates one of them.
REAL = {"base", "scale", "slope", "tol", "beta_fast", "beta_slow"}
COMMUTATIVE = (ast.Add, ast.Mult)
SYMMETRIC = {"transpose", "promote_types", "min", "max"}  # the order of their arguments does not matter


@dataclass(frozen=True)
class Mutant:
    """One changed answer. ``change`` is what differs, as lines of a diff without their context."""

    source: str
    change: str


def mutants(source: str) -> list[Mutant]:
    """Every mutant of the answer ``source``, in the order of its text, without duplicates."""
    tree = ast.parse(source)
    before = ast.unparse(tree)
    found: dict[str, Mutant] = {}
    for holder, key in list(_places(tree)):
        original = _get(holder, key)
        for changed in _changes(original):
            _set(holder, key, changed)
            text = ast.unparse(ast.fix_missing_locations(tree))
            if text != before and text not in found:
                found[text] = Mutant(text, _difference(before, text))
        _set(holder, key, original)
    return list(found.values())


def _places(node: ast.AST) -> Iterator[tuple[ast.AST | list, str | int]]:
    """Places where a node can be exchanged: an object with the name of a field, or a list with an index."""
    if isinstance(node, (ast.Raise, ast.JoinedStr)):
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "targets", "target"):
            continue
        for holder, key in [(value, i) for i in range(len(value))] if isinstance(value, list) else [(node, field)]:
            child = _get(holder, key)
            if isinstance(child, ast.AST) and not _is_text(child):
                yield holder, key
                yield from _places(child)


def _is_text(node: ast.AST) -> bool:
    constant = node.value if isinstance(node, ast.Expr) else node
    return isinstance(constant, ast.Constant) and not isinstance(constant.value, (bool, int, float))


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that may replace this one."""
    for related in OPERATORS.get(type(node), ()):
        yield related()
    match node:
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield from map(_number, _other_numbers(value))
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.BinOp(left=left, op=op, right=right):
            yield from (left, right)
            if not isinstance(op, COMMUTATIVE):
                yield ast.BinOp(right, op, left)
        case ast.BoolOp(values=values):
            yield from values
        case ast.Compare():
            yield ast.UnaryOp(ast.Not(), node)
        case ast.IfExp(body=body, orelse=orelse):
            yield from (body, orelse)
        case ast.Tuple(elts=elements, ctx=ast.Load()):
            yield from (ast.Tuple(list(other), ast.Load()) for other in _swapped(elements))
        case ast.Call():
            yield from _other_calls(node)
        case ast.Slice(lower=lower, upper=upper, step=step):
            yield from _other_slices(lower, upper, step)
        case ast.Subscript(value=value, ctx=ast.Load()):
            yield value
        case ast.Attribute(value=value, attr=name, ctx=ast.Load()):
            if name in ("T", "mT"):
                yield value
            yield from (ast.Attribute(value, other, ast.Load()) for other in RELATED.get(name, ()))
        case ast.Name(id=name, ctx=ast.Load()):
            yield from (ast.Name(other, ast.Load()) for other in RELATED.get(name, ()))
            if name in REAL:
                yield ast.Call(ast.Name("int", ast.Load()), [node], [])
        case ast.If(test=test, body=body, orelse=orelse):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
            yield ast.If(ast.Constant(True), body, orelse)
            yield ast.If(ast.Constant(False), body, orelse)
        case ast.Assign() | ast.AugAssign() | ast.Expr() | ast.Return() | ast.For() | ast.With() | ast.Try():
            yield ast.Pass()


def _number(value: float) -> ast.expr:
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def _other_numbers(value: float) -> list[float]:
    if isinstance(value, int):
        return [value + 1, value - 1, 2 * value, 0, *([value // 2] if value % 2 == 0 else [])]
    return [value + 1, value - 1, 2 * value, value / 2, 1.01 * value, 0.0]


def _swapped(elements: list) -> Iterator[list]:
    for i in range(len(elements) - 1):
        yield [*elements[:i], elements[i + 1], elements[i], *elements[i + 2 :]]


def _other_calls(call: ast.Call) -> Iterator[ast.AST]:
    """The call with arguments dropped or swapped, or only its object or its single argument."""
    function, arguments, options = call.func, call.args, call.keywords
    for i in range(len(arguments)):
        if not _is_device(arguments[i]):
            yield ast.Call(function, arguments[:i] + arguments[i + 1 :], options)
    for i in range(len(options)):
        if not _is_device(options[i].value):
            yield ast.Call(function, arguments, options[:i] + options[i + 1 :])
    if getattr(function, "attr", getattr(function, "id", "")) not in SYMMETRIC:
        yield from (ast.Call(function, other, options) for other in _swapped(arguments))
    if isinstance(function, ast.Attribute) and not (arguments and all(map(_is_device, arguments))):
        yield function.value
    if len(arguments) == 1:
        yield arguments[0]


def _is_device(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "device"


def _other_slices(lower: ast.expr | None, upper: ast.expr | None, step: ast.expr | None) -> Iterator[ast.AST]:
    for bound in (lower, upper):
        if bound is None:
            continue
        for shift in (ast.Add(), ast.Sub()):
            shifted = ast.BinOp(copy.deepcopy(bound), shift, ast.Constant(1))
            yield ast.Slice(shifted, upper, step) if bound is lower else ast.Slice(lower, shifted, step)
    if lower is not None and not (isinstance(lower, ast.Constant) and lower.value == 0):
        yield ast.Slice(None, upper, step)
    if upper is not None:
        yield ast.Slice(lower, None, step)
    if step is not None:
        yield ast.Slice(lower, upper, None)


def _get(holder: ast.AST | list, key: str | int) -> object:
    return holder[key] if isinstance(holder, list) else getattr(holder, key)


def _set(holder: ast.AST | list, key: str | int, value: object) -> None:
    if isinstance(holder, list):
        holder[key] = value
    else:
        setattr(holder, key, value)


def _difference(before: str, after: str) -> str:
    """``- old + new``, every line without its indentation."""
    lines = list(difflib.unified_diff(before.split("\n"), after.split("\n"), n=0, lineterm=""))[2:]
    return " ".join(f"{line[0]} {line[1:].strip()}" for line in lines if line[0] in "-+")
