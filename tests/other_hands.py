"""A class of students who give the same answers in different styles, with copies of five kinds among them.

`autograder/similarity/honest.py` sets the threshold with its own rewriting. This one shares nothing with it: it works
on text, by conventions that a student follows throughout.
"""

import ast
import random
import re
from collections.abc import Callable

NOUNS = tuple(
    re.findall(
        r"\w+",
        """angle axis batch block channel column cosine entry factor first half head index inner key last layer left length mask
matrix middle offset outer pair part phase place query rate right row scale score second shift sine size slot slice span step
sum table target tensor term token total turn value vector weight width""",
    )
)
VERBS = tuple(
    re.findall(
        r"\w+",
        """add apply build check collect compute divide expand fill find gather make mix move multiply prepare rotate split stack
sum take turn use""",
    )
)
TAILS = (
    "here",
    "before the sum",
    "once more",
    "for every head",
    "as asked",
    "by hand",
    "like on paper",
    "with broadcasting",
)
TAILS += ("in one go", "as the formula says", "for all tokens", "in float", "at the end")
ENDS = ("grows", "stays", "turns", "vanishes", "is the same")
GIVEN = {"self", "torch", "nn", "F", "np", "math", "super"}

Names = Callable[[random.Random], str]


def _snake(chance: random.Random) -> str:
    return "_".join(chance.sample(NOUNS, 2))


def _camel(chance: random.Random) -> str:
    first, second = chance.sample(NOUNS, 2)
    return first + second.capitalize()


def _letters(chance: random.Random) -> str:
    return chance.choice("abcdefghmnprstuvw") + chance.choice(["", "", "1", "2", "_"])


def _plain(chance: random.Random) -> str:
    return chance.choice(NOUNS)


def _numbered(chance: random.Random) -> str:
    return f"{chance.choice(['tmp', 't', 'res', 'out', 'val'])}{chance.randrange(1, 9)}"


NAMES: tuple[Names, ...] = (_snake, _camel, _letters, _plain, _numbered)
PHRASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"\.transpose\(-2, -1\)", (".mT", ".swapaxes(-1, -2)", ".transpose(-1, -2)", ".transpose(-2, -1)")),
    (r"(\w+)\.shape\[-1\]", (r"\1.size(-1)", r"\1.shape[-1]", r"\1.size()[-1]")),
    (r"\.float\(\)", (".to(torch.float32)", ".float()", ".type(torch.float32)")),
    (r"\.double\(\)", (".to(torch.float64)", ".double()")),
    (r"torch\.cat\(", ("torch.concat(", "torch.cat(")),
    (r"float\(['\"]-inf['\"]\)", ("-math.inf", "float('-inf')", "-torch.inf", "torch.tensor(-torch.inf)")),
    (r"(?<=\[)\.\.\., ::2\]", ("..., 0::2]", "..., ::2]")),
    (r"\.softmax\(dim=-1\)", (".softmax(-1)", ".softmax(dim=-1)")),
    (r"torch\.softmax\((\w+), dim=-1\)", (r"\1.softmax(-1)", r"F.softmax(\1, dim=-1)", r"torch.softmax(\1, -1)")),
    (
        r"torch\.arange\(0, (\w+), 2\)",
        (r"2 * torch.arange(\1 // 2)", r"torch.arange(0, \1, 2)", r"torch.arange(\1)[::2]"),
    ),
    (r"if (\w+) % 2:", (r"if \1 % 2 == 1:", r"if \1 % 2 != 0:", r"if \1 & 1:", r"if \1 % 2:")),
    (r"math\.sqrt\(([\w.\[\]-]+)\)", (r"\1 ** 0.5", r"math.sqrt(\1)", r"math.pow(\1, 0.5)")),
)


class Hand:
    """One student's conventions."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.name = chance.choice(NAMES)
        self.phrases = [chance.choice(forms) for _, forms in PHRASES]
        self.remarks, self.checks, self.named_results = (chance.choice([0.0, 0.15, 0.5]) for _ in range(3))
        self.remark_style = chance.choice(["# {}", "#{}", "# -> {}", "## {}", "# {}."])

    def write(self, source: str) -> str:
        """Return the answer in this student's style."""
        text = rename(ast.unparse(ast.parse(source)), lambda _: self.name(self.chance))
        for (pattern, _), form in zip(PHRASES, self.phrases, strict=True):
            text = re.sub(pattern, form, text)
        lines: list[str] = []
        for line in text.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            if "ValueError(" in line:
                line = re.sub(r"ValueError\(.*\)", f"ValueError({self.sentence()!r})", line)
            if indent and self.chance.random() < self.remarks:
                lines.append(indent + self.remark_style.format(self.sentence()))
            result = re.fullmatch(r"( +)return (?!self)(.{12,})", line)
            if result and self.chance.random() < self.named_results:
                name = self.name(self.chance)
                lines += [f"{indent}{name} = {result[2]}", f"{indent}return {name}"]
                continue
            lines.append(line)
            if re.match(r" +\w+ = ", line) and self.chance.random() < self.checks / 3:
                lines.append(f"{indent}assert {line.split()[0]} is not None")
        return "\n".join(lines)

    def sentence(self) -> str:
        return f"{self.chance.choice(VERBS)} the {self.chance.choice(NOUNS)} {self.chance.choice(TAILS)}"

    def explain(self, length: int = 90) -> str:
        """Return a text answer."""
        thoughts = [(self.sentence(), self.chance.choice(NOUNS), self.chance.choice(ENDS)) for _ in range(length // 12)]
        return ". ".join(f"So we {what}, because the {noun} {end}" for what, noun, end in thoughts)


def rename(source: str, new: Callable[[str], str]) -> str:
    """Rename every name that the code itself chooses, one for one."""
    tree = ast.parse(source)
    stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    top = {
        name.id
        for node in tree.body
        for name in ast.walk(node)
        if isinstance(node, ast.Assign | ast.AugAssign) and isinstance(name, ast.Name)
    }
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    table: dict[str, str] = {}
    for name in dict.fromkeys(stored):
        if name not in top | arguments | GIVEN:
            made = new(name)
            while made in table.values() or made in arguments | GIVEN:
                made += "x"
            table[name] = made
    if not table:
        return source
    pattern = re.compile(r"(?<![\w.'\"])(" + "|".join(map(re.escape, table)) + r")(?![\w'\"])(?!=[^=])")
    return pattern.sub(lambda match: table[match[1]], source)


def honest_class(answers: dict[str, list[str]], texts: list[str], count: int, seed: int) -> list[dict[str, str]]:
    """Return a class of students who copy nothing; ``answers`` holds right answers by exercise."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        hand = Hand(chance)
        code = {exercise: hand.write(chance.choice(forms)) for exercise, forms in answers.items()}
        found.append(code | {exercise: hand.explain() for exercise in texts})
    return found


# ---- copies ---------------------------------------------------------------------------------------------------------


def other_layout(answer: str, chance: random.Random) -> str:
    """Return the answer without comments, in a formatter's layout."""
    return ast.unparse(ast.parse(answer))


def other_names(answer: str, chance: random.Random) -> str:
    hand = Hand(chance)
    return rename(answer, lambda _: hand.name(chance))


def other_order(answer: str, chance: random.Random) -> str:
    """Swap neighbouring functions, methods and steps that do not depend on each other."""
    tree = ast.parse(answer)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for at in range(len(body) - 1):
                if _independent(body[at], body[at + 1]):
                    body[at], body[at + 1] = body[at + 1], body[at]
    return ast.unparse(tree)


def other_constant(answer: str, chance: random.Random) -> str:
    found = list(re.finditer(r"(?<![\w.])\d+(?:\.\d+)?", answer))
    if not found:
        return answer
    one = chance.choice(found)
    return answer[: one.start()] + str(chance.randrange(3, 99)) + answer[one.end() :]


def other_words(answer: str, chance: random.Random) -> str:
    """Return the text with about every sixth word replaced."""
    return " ".join(chance.choice(NOUNS) if chance.random() < 1 / 6 else word for word in answer.split(" "))


COPIES = {
    "other layout": other_layout,
    "other names": other_names,
    "other order": other_order,
    "other constant": other_constant,
    "part of it": other_names,
}


def copied(
    theirs: dict[str, str], own: dict[str, str], kind: str, texts: list[str], chance: random.Random
) -> dict[str, str]:
    """Return a copier's submission: all exercises copied, or every second one if ``kind`` is "part of it"."""
    taken = list(theirs)[:: 2 if kind == "part of it" else 1]
    return own | {
        exercise: other_words(theirs[exercise], chance) if exercise in texts else COPIES[kind](theirs[exercise], chance)
        for exercise in taken
    }


def _independent(one: ast.AST, other: ast.AST) -> bool:
    plain = ast.Assign | ast.FunctionDef
    if not (isinstance(one, plain) and isinstance(other, plain)):
        return False
    return not (_names(one, ast.Store) & _names(other) or _names(other, ast.Store) & _names(one))


def _names(node: ast.AST, context: type | None = None) -> set[str]:
    found = {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and (context is None or isinstance(n.ctx, context))
    }
    return found | {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)} - {"__init__"}
