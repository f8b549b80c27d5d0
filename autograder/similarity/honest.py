"""Simulated classes in which nobody copied: answers of the bank and the reference, each rewritten in another style.

They show how alike honest answers to these exercises become. The rewriting does what students do: other names, other
comments, functions for methods, swapped operands. None of the code is run.
"""

import ast
import random
import re

# Names that people use when they have no better one.
PLAIN_NAMES = re.findall(
    r"\w+",
    """a b c d e f g h m n p r s t u v w y z aa bb tmp temp res result out output val vals value values arr mat vec cur new old
    idx ids ind step part parts first second left right upper lower half both rest total acc aux buf data item size num cnt
    dim_ length width rows cols freqs freq ang angle angles theta phi cs sn co si cosine sine even odd evens odds x1 x2 y1 y2
    q1 k1 q_ k_ v_ qr kr scores logits attn weights probs pos positions_ dist distances rel offset exps expo inv scale factor""",
)
REMARKS = ("# as in the lecture", "# see the text above", "# pairs of channels", "# TODO tidy up", "# last axis")
HABITS = (
    "turns operands",
    "multiplies by the inverse",
    "calls functions",
    "leaves keywords out",
    "writes remarks",
    "keeps names",
)
AS_FUNCTIONS = frozenset(
    {"transpose", "sum", "mean", "softmax", "exp", "cos", "sin", "stack", "flatten", "reshape", "abs"}
)


class _Hand(ast.NodeTransformer):
    """One student's habits, the same in all their answers; ``chance`` decides where they apply."""

    def __init__(self, chance: random.Random, habits: dict[str, float]) -> None:
        self.chance, self.habits = chance, habits
        self.names: dict[str, str] = {}

    def does(self, habit: str) -> bool:
        return self.chance.random() < self.habits[habit]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Mult) and self.does("turns operands"):
            return ast.BinOp(node.right, node.op, node.left)
        if isinstance(node.op, ast.Div) and self.does("multiplies by the inverse"):
            return ast.BinOp(node.left, ast.Mult(), ast.BinOp(ast.Constant(1.0), ast.Div(), node.right))
        if isinstance(node.op, ast.Pow) and self.does("calls functions"):
            return ast.Call(ast.Attribute(ast.Name("torch"), "pow"), [node.left, node.right], [])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        method = node.func
        if isinstance(method, ast.Attribute) and method.attr in AS_FUNCTIONS and self.does("calls functions"):
            owner = method.value
            if not (isinstance(owner, ast.Name) and owner.id in ("torch", "np", "math", "F")):
                return ast.Call(ast.Attribute(ast.Name("torch"), method.attr), [owner, *node.args], node.keywords)
        for keyword in node.keywords:
            if keyword.arg == "dim" and len(node.keywords) == 1 and self.does("leaves keywords out"):
                return ast.Call(node.func, [*node.args, keyword.value], [])
        return node


def habits(chance: random.Random) -> dict[str, float]:
    """A student's probability of each habit."""
    return {way: chance.choice([0.0, 0.1, 0.3, 0.8]) for way in HABITS}


def in_another_hand(source: str, chance: random.Random, of_student: dict[str, float]) -> str:
    """The answer as another student would write it; text that is not Python stays as it is."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    hand = _Hand(chance, of_student)
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    stored = {
        node.id: None for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    top = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for name in stored:
        if name not in arguments | top and not hand.does("keeps names"):
            hand.names[name] = chance.choice(PLAIN_NAMES)
    tree = hand.visit(tree)
    lines = []
    for text in ast.unparse(ast.fix_missing_locations(tree)).splitlines():
        indent = re.match(r" *", text)
        if indent and indent.group() and chance.random() < of_student["writes remarks"] / 4:
            lines.append(indent.group() + chance.choice(REMARKS))
        lines.append(text)
    return "\n".join(lines)


def simulated_class(known: dict[str, list[str]], count: int, seed: str) -> list[dict[str, str]]:
    """Answers of ``count`` students: each rewrites a randomly chosen right answer to most exercises."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        of_student = habits(chance)
        found.append(
            {
                exercise: in_another_hand(chance.choice(sources), chance, of_student)
                for exercise, sources in known.items()
                if chance.random() < 0.9
            }
        )
    return found
