"""`make gradescope`: a week's autograder as a zip for Gradescope, and the code that runs in Gradescope's container.

Source: https://gradescope-autograders.readthedocs.io/en/latest/specs/. The archive has setup.sh and run_autograder at
its top and is unpacked to /autograder/source; the submission is in /autograder/submission; results go to
/autograder/results/results.json.
"""

import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from autograder.course import is_week, require_course
from autograder.errors import AutograderError, CourseError, UngradableError
from autograder.pages import filled

WITHOUT_NAMESPACES = (
    "Where their container allows no user namespaces, a submission runs beside the grader, without the sandbox: code that "
    "sets out to can read the hidden tests, use the network and write results of its own. Nothing of a class is there."
)


def package(root: Path, assignment: str, index: str = "") -> Path:
    """Write ``release/gradescope-ASSIGNMENT.zip``: the same bytes for the same course."""
    from autograder.build.release import require_fresh, write_zip  # imported late: the container needs no build

    if index and not index.startswith(("http://", "https://")):
        raise CourseError(f"INDEX is the address of a package index, and {index!r} does not begin with https://")
    require_course(root)
    if is_week(assignment):
        require_fresh(root, root / "source" / f"{assignment}.py")
    pins = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    requirements = "".join(f"{line}\n" for line in [*([f"--extra-index-url {index}"] if index else []), *pins])
    files = {"requirements.txt": requirements.encode()}
    for name in ("setup.sh", "run_autograder"):
        files[name] = filled(f"gradescope_{name}.j2", assignment=assignment).encode()
    for path in _course_files(root, assignment):
        files[f"course/{path.relative_to(root).as_posix()}"] = path.read_bytes()
    target = root / "release" / f"gradescope-{assignment}.zip"
    target.parent.mkdir(exist_ok=True)
    return write_zip(target, "", files)


def _course_files(root: Path, assignment: str) -> list[Path]:
    """The course's files that grading one assignment needs."""
    folders = [root / "autograder", root / "source" / assignment]
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    hidden = {"__pycache__", ".ipynb_checkpoints"}
    return [root / "nbgrader_config.py", *(path for path in found if not hidden & set(path.parts))]


def main() -> int:
    """Grade the submission inside the container. If grading fails, no results are written, so nobody gets a score."""
    from autograder.one_notebook import grade_notebook

    assignment, submission, results = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    start = time.monotonic()
    try:
        checked = grade_notebook(Path.cwd(), submission, assignment=assignment)
        made = results_of(checked.to_json())
        if not checked.isolated:
            print(WITHOUT_NAMESPACES)
    except UngradableError as reason:  # the student can fix it and hand in again
        made = {"score": 0, "output": f"Not graded: {reason}"}
    except AutograderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    results.parent.mkdir(parents=True, exist_ok=True)
    made |= {"execution_time": round(time.monotonic() - start), "visibility": "visible", "stdout_visibility": "hidden"}
    results.write_text(json.dumps(made, indent=1), encoding="utf-8")
    return 0


def results_of(checked: dict[str, Any]) -> dict[str, Any]:
    """The content of results.json for a graded notebook: one test per exercise, with the first item of its feedback."""
    tests = [
        {
            "name": f"{exercise['number']} {exercise['name']}",
            "number": exercise["number"],
            "score": exercise["score"],
            "max_score": exercise["points"],
            "status": "passed" if exercise["score"] == exercise["points"] else "failed",
            "output": (exercise["feedback"] or [""])[0],
        }
        for exercise in checked["exercises"]
        if exercise["score"] is not None
    ]
    by_hand = [f"{e['number']} {e['name']}: {e['points']:g} points" for e in checked["exercises"] if e["score"] is None]
    said = [*checked["notes"], *([f"Graded by a person: {', '.join(by_hand)}."] if by_hand else [])]
    return {"tests": tests, "output": "\n".join(said)}


if __name__ == "__main__":
    sys.exit(main())
