"""`python -m autograder`: the commands behind the Makefile."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autograder.errors import AutograderError, CourseError, cannot_store, missing_package
from autograder.imports import importing


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 2, after one line of text, for an error that a person can fix."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except AutograderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"error: {missing_package(error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever was to read the output has gone, as in `make lms | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, _database_error()) as error:
        print(f"error: {cannot_store(error)}, then run the same command again; what is graded is kept", file=sys.stderr)
        return 2
    except _setting_error() as error:
        print(f"error: {str(error).rstrip('.')}. Look in nbgrader_config.py.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; run the same command again to go on where it stopped", file=sys.stderr)
        return 130


def _database_error() -> type[Exception]:
    from sqlalchemy.exc import DatabaseError  # imported late: most commands need no database

    return DatabaseError


def _setting_error() -> type[Exception]:
    from traitlets import TraitError

    return TraitError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="autograder", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="course root (default: the current folder)")
    commands = parser.add_subparsers(required=True, metavar="command")
    week, grading = argparse.ArgumentParser(add_help=False), argparse.ArgumentParser(add_help=False)
    week.add_argument("--week", help="for example 3; for most commands also several, as 1,2")
    grading.add_argument("--isolation", choices=["bubblewrap", "none"], default="bubblewrap")
    grading.add_argument("--workers", type=int, default=0, help="submissions at the same time (default: one per core)")

    def command(
        name: str,
        run: Callable[[argparse.Namespace], int],
        help: str,
        *parents: argparse.ArgumentParser,
        **options: dict[str, Any],
    ) -> None:
        sub = commands.add_parser(name, help=help, parents=parents)
        for option, how in options.items():
            sub.add_argument(option if option == "file" else f"--{option}", **how)
        sub.set_defaults(run=run)

    def text(help: str) -> dict[str, Any]:
        return {"default": "", "help": help}

    def switch(help: str) -> dict[str, Any]:
        return {"action": "store_true", "help": help}

    systems = text("canvas, moodle, brightspace or blackboard")
    command("build", _build, "build notebooks/ and solutions/ from source/", week)
    command("import", _import, "bring an edit of source/weekN/*.ipynb back into the text", week)
    command("student-release", _student_release, "write what students may have to release/", week)
    command("site", _site, "write the course as a site to build/site/")
    command("slides", _slides, "write one week's lecture to build/slides/", week)
    command(
        "autograde",
        _autograde,
        "grade the submissions of one week, of several, or of all",
        week,
        grading,
        students=text("only these, separated by commas"),
        regrade=switch("grade again what is graded already"),
        timings=switch("show how long each exercise took over the class"),
        scheduler=text("grade on this Dask cluster: an address or a scheduler file"),
    )
    command("feedback", _of_week("write_feedback"), "write feedback pages", week)
    command("report", _of_week("report"), "write the class report", week)
    earlier = text("submitted/ folders of earlier years, separated by commas")
    about = "write a page of submissions that are more alike than they need be"
    command("similarity", _of_week("similarity", "earlier"), about, week, earlier=earlier)
    about = "write a page of what students ask to have looked at again"
    command("regrade-requests", _of_week("regrade_requests"), about, week)
    about = "write a table of points for a learning management system"
    each = switch("a column for each exercise, too")
    command("lms", _of_week("lms", "format", "exercises"), about, week, format=systems, exercises=each)
    command("quiz", _quiz, "write one week's questions for a learning management system", week, format=systems)
    index = text("where pip finds small torch wheels, without CUDA")
    command("gradescope", _gradescope, "write the zip of one week that Gradescope takes", week, index=index)
    as_json = switch("print the verdicts as JSON")
    command(
        "check", _check, "grade one notebook of your own", grading, file={"nargs": "?", "default": ""}, json=as_json
    )
    command("demo", _demo, "grade a simulated class", grading, students={"type": _at_least_one, "default": 12})
    command("doctor", _doctor, "OK or FAIL for everything the course needs")
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of students: give 1 or more")
    return int(text)


def _of_week(name: str, *more: str) -> Callable[[argparse.Namespace], int]:
    """Return the command ``name``, called for each assignment with the root, it and the options in ``more``."""

    def run(options: argparse.Namespace) -> int:
        from autograder import commands
        from autograder.course import assignments_of

        given = [getattr(options, option) for option in more]
        weeks = assignments_of(options.week, options.root)
        return max(int(getattr(commands, name)(options.root.resolve(), week, *given)) for week in weeks)

    return run


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
            from autograder import commands
        return int(commands.autograde(root, assignments, options, grader))


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
