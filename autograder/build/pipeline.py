"""`make build`: text → instructor's notebook → student's notebook and executed solution, one way."""

import ast
import re
import shutil
import tempfile
from pathlib import Path

import nbformat
from nbconvert.filters import strip_ansi
from nbformat.notebooknode import NotebookNode
from nbgrader.converters import GenerateAssignment, GenerateSolution
from nbgrader.converters.base import NbGraderException

import autograder
from autograder.build.preprocessors import PRODUCTS, source_digest
from autograder.build.regions import check_marks
from autograder.build.text import to_notebook, to_text
from autograder.course import course_config, course_directory, released_files, source_notebook
from autograder.errors import CourseError, TextError
from autograder.log import CapturedLog
from autograder.manifest import MANIFEST, RELEASED_FILES, SHARED_FILES, SIMULATED_DEVICE

WORKER = Path(autograder.__file__).parent / "grading" / "sandbox" / "worker"
LITTER = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")


def texts(root: Path, week: str | None = None) -> list[Path]:
    """The text notebooks of the course, or the one of WEEK."""
    found = sorted((root / "source").glob("week*_*.py"))
    if not week:
        return found
    chosen = [path for path in found if week in (path.stem, path.stem.split("_")[0], path.stem.split("_")[0][4:])]
    if len(chosen) != 1:
        names = ", ".join(path.stem.split("_")[0][4:] for path in found)
        raise CourseError(f"there is no week {week!r}; there is: {names}")
    return chosen


def build(root: Path, text: Path) -> list[str]:
    """Build one week; returns a line per product that changed. Nothing is written if a stage fails."""
    assignment = text.stem
    with tempfile.TemporaryDirectory(prefix="build-") as scratch:
        stage = Path(scratch)
        source = _stage(root, stage, text)
        digest = source_digest(source)
        if _recorded_digest(root / "solutions" / assignment / f"{assignment}.ipynb") == digest:
            shutil.copytree(root / "solutions" / assignment, stage / "solutions" / assignment, ignore=LITTER)
        else:
            _generate(root, stage, GenerateSolution, assignment)
        changed = []
        for folder in ("source", "notebooks", "solutions"):
            changed += _publish(stage / folder / assignment, root / folder / assignment, root)
    return changed


def build_own(root: Path, assignment: str) -> list[str]:
    """Build the students' version of an instructor's own assignment with nbgrader; returns the files that changed."""
    for cell in nbformat.read(source_notebook(root, assignment), as_version=4).cells:
        try:
            check_marks(cell.source)
        except TextError as error:
            raise TextError(f"source/{assignment}/{assignment}.ipynb: {error}") from error
    released_files(root, assignment)  # refuses what is too large
    with tempfile.TemporaryDirectory(prefix="build-") as scratch:
        stage = Path(scratch)
        shutil.copytree(root / "source" / assignment, stage / "source" / assignment, ignore=LITTER)
        _generate(root, stage, GenerateAssignment, assignment)
        return _copy_changed(stage / "notebooks" / assignment, root / "notebooks" / assignment, root)


def stale_products(root: Path, text: Path) -> list[str]:
    """The files of one week under source/ and notebooks/ that differ from what the text builds."""
    with tempfile.TemporaryDirectory(prefix="build-") as scratch:
        stage = Path(scratch)
        _stage(root, stage, text)
        return [
            str(Path(folder) / text.stem / path.name)
            for folder in ("source", "notebooks")
            for path in sorted((stage / folder / text.stem).iterdir())
            if not _same_bytes(path, root / folder / text.stem / path.name)
        ]


def _stage(root: Path, stage: Path, text: Path) -> Path:
    """Build the instructor's folder and the student's under ``stage``; returns the instructor's."""
    assignment = text.stem
    source = stage / "source" / assignment
    source.mkdir(parents=True)
    try:
        notebook = to_notebook(text.read_text(encoding="utf-8"))
        _compare_with_manifest(notebook, assignment)
    except TextError as error:
        raise TextError(f"source/{text.name}: {error}; see docs/authoring.md") from error
    (source / f"{assignment}.ipynb").write_text(_dump(notebook), encoding="utf-8")
    for name in (*SHARED_FILES, *RELEASED_FILES.get(assignment, ())):
        folder = WORKER if name == SIMULATED_DEVICE else root / "source"
        copy_released(folder / name, source / name)
    _generate(root, stage, GenerateAssignment, assignment)
    return source


def _compare_with_manifest(notebook: NotebookNode, assignment: str) -> None:
    """Raise ``TextError`` if text and manifest differ in the exercises, their points or their hidden tests."""
    marks = [cell.metadata.get("nbgrader", {}) for cell in notebook.cells]
    given = {each["grade_id"]: each["points"] for each in marks if each.get("grade") and each.get("points")}
    due = {entry.graded_cell: entry for entry in MANIFEST.get(assignment, ())}
    for name, found in given.items():
        if due and name not in due:
            raise TextError(f"{name} has points and no exercise in autograder/manifest.py; or is its name mistyped?")
        if due and found != due[name].points:
            of = f"exercise {due[name].number} in autograder/manifest.py {due[name].points:g}"
            raise TextError(f"{name} has {found} points, {of}")
    for name in [name for name in due if name not in given]:
        raise TextError(
            f"no cell has points and the name {name}, as exercise {due[name].number} in autograder/manifest.py"
        )
    sources = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell.source for cell in notebook.cells}
    for name, answer in [(name, entry.grade_id) for name, entry in due.items() if name != entry.grade_id]:
        if answer not in sources:
            raise TextError(f"there is no answer cell {answer}, which {name} grades")
        test = f"{assignment.split('_')[0]}.{answer}"
        if not any(ast.unparse(call.func) == test and _is_given(call, answer) for call in _calls(sources[name])):
            raise TextError(f"{name} must call its own hidden test: {test}({answer})")


def _calls(source: str) -> list[ast.Call]:
    try:
        return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except SyntaxError:
        return []


def _is_given(call: ast.Call, name: str) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(isinstance(each, ast.Name) and each.id == name for each in given)


def copy_released(file: Path, target: Path) -> None:
    """Copy a released file. Scripts that a helper module reads from a folder are put into it: students get one file."""
    if file.suffix != ".py":
        shutil.copy(file, target)
        return
    target.write_text(
        SCRIPTS.sub(lambda found: _as_literal(file.with_name(found[2])), file.read_text("utf-8")), "utf-8"
    )


SCRIPTS = re.compile(
    r'\{\s*(\w+)\.stem: \1\.read_text\("utf-8"\) for \1 in Path\(__file__\)\.with_name\("(\w+)"\)\.glob\("\*\.js"\)\s*\}'
)


def _as_literal(folder: Path) -> str:
    texts = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.js"))}
    if not texts:
        raise CourseError(
            f"source/{folder.name}/ has no scripts, which source/{folder.name.removesuffix('_pictures')}.py needs"
        )
    return "{" + ", ".join(f'"{name}": r"""\n{text}"""' for name, text in texts.items()) + "}"


def _same_bytes(a: Path, b: Path) -> bool:
    return b.is_file() and a.read_bytes() == b.read_bytes()


def import_week(root: Path, text: Path) -> bool:
    """Bring an edit of the instructor's notebook back into the text. Refuses when the text is newer."""
    notebook = root / "source" / text.stem / f"{text.stem}.ipynb"
    if not notebook.is_file():
        raise CourseError(f"{notebook.relative_to(root)} does not exist: nothing to import")
    edited = nbformat.read(notebook, as_version=4)
    current = text.read_text(encoding="utf-8")
    if to_text(edited) == to_text(to_notebook(current)):
        return False
    if text.stat().st_mtime > notebook.stat().st_mtime:
        raise CourseError(
            f"{text.relative_to(root)} is newer than {notebook.relative_to(root)}: an import would undo the edit "
            f"of the text. Keep the text with `make build`, or, to take the notebook, `touch` it first"
        )
    imported = to_text(edited)
    to_notebook(imported)  # a notebook that breaks a rule is refused before anything is written
    text.write_text(imported, encoding="utf-8")
    return True


def _generate(root: Path, stage: Path, converter_class: type, assignment: str) -> None:
    config = course_config(root)
    config.CourseDirectory.db_url = f"sqlite:///{stage}/build.db"
    converter = converter_class(coursedir=course_directory(stage, assignment, config), config=config)
    converter.log = log = CapturedLog()
    try:
        converter.start()
    except NbGraderException as error:
        raise CourseError(f"{converter_class.__name__} failed on {assignment}: {_gist(log) or error}") from None


def _gist(log: CapturedLog) -> str:
    """The useful part of nbgrader's error log: the failing cell and its error, or the last line of the traceback."""
    traceback: str = strip_ansi(log.traceback)
    _, _, cell_error = traceback.partition("CellExecutionError: ")
    return cell_error or traceback.rpartition("\n")[2].removeprefix("autograder.errors.TextError: ")


def _dump(notebook: nbformat.NotebookNode) -> str:
    return f"{nbformat.writes(notebook, version=nbformat.NO_CONVERT)}\n"


def _recorded_digest(solution: Path) -> str | None:
    """Return what a solution was built from; ``None`` if it is missing, or no notebook, as after a merge with conflicts."""
    try:
        digest: str | None = nbformat.read(solution, as_version=4).metadata.get("course", {}).get("built_from")
    except (OSError, ValueError):
        return None
    return digest


def _publish(staged: Path, target: Path, root: Path) -> list[str]:
    """Copy staged files that differ into place, and remove generated files no longer built; return the changes."""
    changed = _copy_changed(staged, target, root)
    for path in target.iterdir():
        if path.is_file() and not (staged / path.name).is_file() and path.suffix in PRODUCTS:
            path.unlink()
            changed.append(f"{path.relative_to(root)} (removed)")
    return changed


def _copy_changed(made: Path, target: Path, root: Path) -> list[str]:
    """Copy the files that differ into place, but for what Python has compiled; return which."""
    changed = []
    for path in sorted(made.rglob("*")):
        place = target / path.relative_to(made)
        if path.is_file() and "__pycache__" not in path.parts and not _same_bytes(path, place):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            changed.append(str(place.relative_to(root)))
    return changed
