"""`python -m autograder`: the commands behind the Makefile."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from autograder.errors import AutograderError, CourseError, cannot_store, missing_package
from autograder.imports import giving_way, importing


def main(arguments: list[str] | None = None) -> int:
    """Run one command; errors a person can put right are one line and exit code 2."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except AutograderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"error: {missing_package(error)}", file=sys.stderr)
        return 2
    except (OSError, _database_error()) as error:
        print(
            f"error: {cannot_store(error)}, then run the same command again; what is graded is kept",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("stopped; run the same command again to go on where it stopped", file=sys.stderr)
        return 130


def _database_error() -> type[Exception]:
    from sqlalchemy.exc import DatabaseError  # only now: most commands need no database

    return DatabaseError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="autograder", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="course root (default: the current folder)")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help)
        sub.set_defaults(run=run)
        return sub

    build = command("build", _build, "build notebooks/ and solutions/ from source/")
    build.add_argument("--week")
    importing = command("import", _import, "bring an edit of source/weekN/*.ipynb back into the text")
    importing.add_argument("--week")
    releasing = command("student-release", _student_release, "write what students may have to release/")
    releasing.add_argument("--week", help="only these, separated by commas")
    command("site", _site, "write the course as a site to build/site/")
    slides = command("slides", _slides, "write one week's lecture to build/slides/")
    slides.add_argument("--week")
    autograde = command("autograde", _autograde, "grade the submissions of one week, of several, or of all")
    autograde.add_argument("--week", help="one, several separated by commas, or all")
    autograde.add_argument("--students", default="", help="only these, separated by commas")
    autograde.add_argument("--regrade", action="store_true", help="grade again what is graded already")
    autograde.add_argument("--timings", action="store_true", help="show how long each exercise took over the class")
    autograde.add_argument("--scheduler", default="", help="grade on this Dask cluster: an address or a scheduler file")
    _grading_options(autograde)
    feedback = command("feedback", _feedback, "write feedback pages for one week")
    feedback.add_argument("--week")
    report = command("report", _report, "write the class report of one week")
    report.add_argument("--week")
    similarity = command("similarity", _similarity, "write a page of submissions that are more alike than they need be")
    similarity.add_argument("--week")
    similarity.add_argument("--earlier", default="", help="submitted/ folders of earlier years, separated by commas")
    regrading = command(
        "regrade-requests", _regrade_requests, "write a page of what students ask to have looked at again"
    )
    regrading.add_argument("--week")
    lms = command("lms", _lms, "write a table of one week's points for a learning management system")
    lms.add_argument("--week")
    lms.add_argument("--format", default="", help="canvas, moodle, brightspace or blackboard")
    lms.add_argument("--exercises", action="store_true", help="a column for each exercise, too")
    quiz = command("quiz", _quiz, "write one week's questions for a learning management system")
    quiz.add_argument("--week")
    quiz.add_argument("--format", default="", help="canvas, moodle, brightspace or blackboard")
    gradescope = command("gradescope", _gradescope, "write the zip of one week that Gradescope takes")
    gradescope.add_argument("--week")
    gradescope.add_argument("--index", default="", help="where pip finds small torch wheels, without CUDA")
    check = command("check", _check, "grade one notebook of your own")
    check.add_argument("file", nargs="?", default="")
    check.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    _grading_options(check)
    demo = command("demo", _demo, "grade a simulated class")
    demo.add_argument("--students", type=int, default=12)
    _grading_options(demo)
    command("doctor", _doctor, "OK or FAIL for everything the course needs")
    return parser


def _grading_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--isolation", choices=["bubblewrap", "none"], default="bubblewrap")
    parser.add_argument("--workers", type=int, default=0, help="submissions at the same time (default: one per core)")


def _build(options: argparse.Namespace) -> int:
    from autograder.build.opened_alone import update_readme
    from autograder.build.pipeline import build, build_own, texts
    from autograder.course import own_assignments

    def told(name: str, changed: list[str]) -> None:
        print(f"{name}: " + (f"wrote {len(changed)} files" if changed else "up to date"))
        for path in changed:
            print(f"  {path}")

    own = own_assignments(options.root)
    for text in [] if options.week in own else texts(options.root, options.week):
        told(text.stem, build(options.root, text))
    for name in own:
        if options.week in (None, name):
            told(name, build_own(options.root, name))
    if update_readme(options.root):
        print("README.md: badges")
    return 0


def _import(options: argparse.Namespace) -> int:
    from autograder.build.pipeline import import_week, texts

    if not options.week:
        raise CourseError("say which week, for example WEEK=3")
    text = texts(options.root, options.week)[0]
    changed = import_week(options.root, text)
    print(
        f"source/{text.name}: "
        + ("updated; look at `git diff`, then run `make build`" if changed else "nothing to import")
    )
    return 0


def _student_release(options: argparse.Namespace) -> int:
    from autograder.build.release import release

    folder, archive = release(options.root.resolve(), options.week)
    weeks = ", ".join(path.name for path in sorted(folder.glob("week*")))
    print(
        f"wrote {weeks} with README.md, requirements.txt and environment.yml to\n"
        f"  {folder.relative_to(options.root.resolve())}\n  {archive.relative_to(options.root.resolve())}"
    )
    return 0


def _site(options: argparse.Namespace) -> int:
    from autograder.site.build import build_site

    root = options.root.resolve()
    site = build_site(root, root / "build")
    print(f"wrote {len(list(site.rglob('*.html')))} pages; open {(site / 'index.html').relative_to(root)}")
    return 0


def _slides(options: argparse.Namespace) -> int:
    from autograder.course import assignment_of
    from autograder.slides import write_slides

    root = options.root.resolve()
    page, count = write_slides(root, assignment_of(options.week, options.root), root / "build" / "slides")
    print(f"wrote {count} slides; open {page.relative_to(root)}")
    return 0


def _autograde(options: argparse.Namespace) -> int:
    from autograder.course import assignments_of
    from autograder.grading.executors.grader import Grader
    from autograder.grading.messages import Options, wanted_device

    assignments = assignments_of(options.week, options.root)
    root = options.root.resolve()
    how = Options(options.isolation != "none", wanted_device(), options.workers, scheduler=options.scheduler)
    with Grader() as grader:
        if not options.scheduler:
            grader.prestart(assignments[0], how)
        with importing():  # while the grading process starts
            commands = giving_way("autograder.commands")
        return int(commands.autograde(root, assignments, options, grader))


def _feedback(options: argparse.Namespace) -> int:
    from autograder.commands import write_feedback
    from autograder.course import assignment_of

    return write_feedback(options.root.resolve(), assignment_of(options.week, options.root))


def _report(options: argparse.Namespace) -> int:
    from autograder.commands import report
    from autograder.course import assignment_of

    return report(options.root.resolve(), assignment_of(options.week, options.root))


def _similarity(options: argparse.Namespace) -> int:
    from autograder.commands import similarity
    from autograder.course import assignment_of

    earlier = [place.strip() for place in options.earlier.split(",") if place.strip()]
    return similarity(options.root.resolve(), assignment_of(options.week, options.root), earlier)


def _regrade_requests(options: argparse.Namespace) -> int:
    from autograder.commands import regrade_requests
    from autograder.course import assignment_of

    return regrade_requests(options.root.resolve(), assignment_of(options.week, options.root))


def _lms(options: argparse.Namespace) -> int:
    from autograder.commands import lms
    from autograder.course import assignment_of

    assignment = assignment_of(options.week, options.root)
    return lms(options.root.resolve(), assignment, options.format, options.exercises)


def _quiz(options: argparse.Namespace) -> int:
    from autograder.quiz import write_quiz

    root = options.root.resolve()
    path, count = write_quiz(root, options.week, options.format)
    print(f"wrote {count} questions with their answers to {path.relative_to(root)}; docs/lms.md says how to import it")
    return 0


def _gradescope(options: argparse.Namespace) -> int:
    from autograder.course import assignment_of
    from autograder.gradescope import WITHOUT_NAMESPACES, package

    root = options.root.resolve()
    path = package(root, assignment_of(options.week, options.root), options.index)
    print(
        f"wrote {path.relative_to(root)}: upload it as the autograder of a programming assignment.\n{WITHOUT_NAMESPACES}"
    )
    return 0


def _check(options: argparse.Namespace) -> int:
    with importing():
        from autograder.commands import check_file

    return check_file(options.root.resolve(), options.file, options)


def _demo(options: argparse.Namespace) -> int:
    from autograder.commands import demo

    return demo(options.root.resolve(), options)


def _doctor(options: argparse.Namespace) -> int:
    from autograder.doctor import report

    return report(options.root.resolve())


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
