"""The reference kernels' signatures and docstrings. Their bodies are answers to exercises, so no page shows them.

The kernels are read from the source, not imported: the site needs no torch.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from autograder.manifest import MANIFEST

ARXIV = re.compile(r"\barXiv:(?P<number>\d{4}\.\d{4,5})")
MARKUP = re.compile(r"(`+[^`]*`+)|([\\*_{}\[\]<>#$|~^])")


@dataclass(frozen=True)
class Kernel:
    """A function or class that an exercise asks for."""

    name: str
    module: str
    signature: str
    docstring: str
    is_class: bool

    def directive(self, index: bool = True) -> str:
        """Markdown for Sphinx's description of the kernel; only one page of the site may put it in the index."""
        kind = "class" if self.is_class else "function"
        options = "" if index else ":no-index:\n"
        return f"```{{py:{kind}}} {self.name}{self.signature}\n{options}\n{_as_markdown(self.docstring)}\n```"


def read_kernels(root: Path) -> dict[str, Kernel]:
    """All kernels that exercises are graded against, by name, in the order of the exercises."""
    exercises = [entry.grade_id for entries in MANIFEST.values() for entry in entries]
    trees = {path.stem: _tree(path) for path in sorted((root / "autograder" / "reference").glob("*.py"))}
    classes = {node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    found = {
        node.name: _kernel(node, module, classes)
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in exercises
    }
    return {name: found[name] for name in exercises if name in found}


def module_summary(root: Path, module: str) -> str:
    """The first line of a reference module's docstring."""
    return (ast.get_docstring(_tree(root / "autograder" / "reference" / f"{module}.py")) or "").partition("\n")[0]


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _kernel(node: ast.FunctionDef | ast.ClassDef, module: str, classes: dict[str, ast.ClassDef]) -> Kernel:
    docstring = ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        return Kernel(node.name, module, f"({_arguments(node, classes)})", docstring, is_class=True)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return Kernel(node.name, module, f"({ast.unparse(node.args)}){returns}", docstring, is_class=False)


def _arguments(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> str:
    """The arguments of the class's own ``__init__``, or of its base's."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return ast.unparse(item.args).removeprefix("self, ")
    [base] = [classes[base.id] for base in node.bases if isinstance(base, ast.Name)]
    return _arguments(base, classes)


def _as_markdown(docstring: str) -> str:
    """Escape a docstring, which is plain text with code in backticks as its only markup; link its papers."""
    escaped = MARKUP.sub(lambda found: found[1] or f"\\{found[2]}", docstring)
    return ARXIV.sub(r"[\g<0>](https://arxiv.org/abs/\g<number>)", escaped)
