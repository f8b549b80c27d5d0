"""Lets students open a released notebook without its folder, as in Colab: it fetches its files, or names them.

Only released notebooks have this code and the Colab badge; grading puts the instructor's set-up cell back.
"""

import re
from pathlib import Path

from nbconvert.exporters.exporter import ResourcesDict
from nbformat.notebooknode import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Unicode

from autograder.course import Role, is_week, role_of
from autograder.manifest import MANIFEST, RELEASED_FILES, SHARED_FILES
from autograder.public_address import PublicAddress, public_address

BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
BADGES = re.compile(r"(<!-- badges[^>]*-->\n).*?(<!-- end of badges -->)", re.DOTALL)


class OpenedAlone(NbGraderPreprocessor):
    """Makes the set-up cell look for the notebook's files first, and adds a badge if there is an address."""

    course = Unicode("", help="The folder of the course, where pyproject.toml has the public address.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        assignment = resources["nbgrader"]["assignment"]
        if not is_week(assignment):
            return nb, resources
        address = public_address(Path(self.course))
        for cell in nb.cells:
            if role_of(cell) is Role.SETUP:
                cell.source = f"{look_for_files(assignment, address)}\n\n{cell.source}"
        if badge := colab_badge(assignment, address):
            head, _, rest = nb.cells[0].source.partition("\n")
            nb.cells[0].source = f"{head}\n\n{badge}\n{rest}"
        return nb, resources


def look_for_files(assignment: str, address: PublicAddress) -> str:
    """Code that fetches missing files of the notebook, or says in one sentence what to do. Its names begin with an
    underscore so that no answer relies on them."""
    names = ", ".join(f'"{name}"' for name in (*SHARED_FILES, *RELEASED_FILES.get(assignment, ())))
    where = address.raw(f"notebooks/{assignment}")
    if where:
        return (
            "# Opened alone, as Colab does? Then this fetches the files that belong beside this notebook.\n"
            "import os as _os, urllib.request as _web\n\n"
            f"for _file in [{names}]:\n"
            "    if not _os.path.exists(_file):\n"
            f'        _web.urlretrieve(f"{where}/{{_file}}", _file)'
        )
    return (
        "# Opened alone? Then this says which files belong beside this notebook.\n"
        "import os as _os\n\n"
        f"_missing = [file for file in [{names}] if not _os.path.exists(file)]\n"
        "if _missing:\n"
        "    raise FileNotFoundError(f\"put {', '.join(_missing)}, which came with this notebook, into its folder\")"
    )


def colab_badge(assignment: str, address: PublicAddress) -> str:
    """A link to the released notebook in Colab; empty without an address that Colab can read."""
    link = address.colab(f"notebooks/{assignment}/{assignment}.ipynb")
    return f"[![Open in Colab]({BADGE})]({link})" if link else ""


def update_readme(root: Path) -> bool:
    """Fill the README's place for badges, or empty it; returns whether that changed anything."""
    readme, address = root / "README.md", public_address(root)
    if not readme.is_file():
        return False
    found = {assignment.split("_")[0][4:]: colab_badge(assignment, address) for assignment in MANIFEST}
    lines = "".join(f"Week {week}: {badge}\n" for week, badge in found.items() if badge)
    text = readme.read_text(encoding="utf-8")
    made = BADGES.sub(lambda place: place[1] + lines + place[2], text)
    if made != text:
        readme.write_text(made, encoding="utf-8")
    return made != text
