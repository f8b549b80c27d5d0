"""The gradebook in PostgreSQL: the same scores, pages and tables as in SQLite, and errors that hide the password."""

import csv
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser.lab_server import JupyterServer
from helpers import COURSE, WEEK3, GradedClass, autograder, run, standing
from nbgrader.coursedir import CourseDirectory
from web import Client, free_ports

from autograder.course import course_config
from autograder.doctor import _gradebook
from autograder.grading.plugins.gradebook import scores

pytestmark = pytest.mark.isolation
PASSWORD = "correct-horse-battery"
NAME = "positional_encodings"


@dataclass
class Server:
    """The test's own PostgreSQL server, on a free port."""

    port: int
    passwords: Path  # a ~/.pgpass
    shell: Callable[..., subprocess.CompletedProcess]

    @property
    def address(self) -> str:
        """The address as in the guide, without a password."""
        return f"postgresql://grader@127.0.0.1:{self.port}/{NAME}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")) or [Path(shutil.which("pg_ctl") or "")]
    if not programs[-1].is_file():
        pytest.skip("PostgreSQL's server is not installed (Debian: sudo apt install postgresql)")
    account = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []  # PostgreSQL refuses to run as root
    place = Path(tempfile.mkdtemp(prefix="postgresql-"))
    if account:
        shutil.chown(place, "postgres")

    def shell(program: str, *arguments: str) -> subprocess.CompletedProcess:
        command = [*account, str(programs[-1].with_name(program)), *arguments]
        return subprocess.run(
            command,
            cwd=place,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=(place.parent / f"{place.name}.log").open("ab"),
        )

    (port,) = free_ports(1)
    local = ("-h", str(place), "-p", str(port))
    settings = f"-c listen_addresses=127.0.0.1 -p {port} -k {place} -c fsync=off"
    # Connections by the network need a password; the test's own commands use the socket.
    shell("initdb", "-D", f"{place}/data", "--auth-host=scram-sha-256", "--auth-local=trust")
    shell("pg_ctl", "start", "-w", "-D", f"{place}/data", "-l", f"{place}/log", "-o", settings)
    try:
        shell("psql", *local, "-d", "postgres", "-c", f"CREATE ROLE grader LOGIN PASSWORD '{PASSWORD}'")
        shell("createdb", *local, "--owner", "grader", NAME)
        passwords = place / "pgpass"
        passwords.write_text(f"127.0.0.1:{port}:*:grader:{PASSWORD}\n")
        passwords.chmod(0o600)
        shutil.chown(passwords, os.getuid())
        yield Server(port, passwords, lambda program, *arguments: shell(program, *local, *arguments))
    finally:
        shell("pg_ctl", "stop", "-m", "immediate", "-D", f"{place}/data")
        shutil.rmtree(place)
        place.with_name(f"{place.name}.log").unlink(missing_ok=True)


def with_address(source: Path, target: Path, address: str) -> Path:
    """Copy a course root, ungraded, with its gradebook at this address."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("autograded", "feedback", "gradebook.db", "report"))
    with (target / "nbgrader_config.py").open("a", encoding="utf-8") as config:
        config.write(f"\nc.CourseDirectory.db_url = {address!r}\n")
    return target


@pytest.fixture(scope="module")
def course(graded_class: GradedClass, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The class of the other tests, graded into PostgreSQL."""
    root = with_address(graded_class.root, tmp_path_factory.mktemp("postgresql") / "course", server.address)
    with (root / "roster.csv").open("w", encoding="utf-8") as roster:
        roster.write("id,first_name,last_name,email\n")
        roster.writelines(f"{student.name},{student.name.capitalize()},Example,\n" for student in graded_class.students)
    run("nbgrader", "db", "student", "import", "roster.csv", cwd=root, PGPASSFILE=str(server.passwords))
    autograder("--root", str(root), "autograde", "--week", "3", PGPASSFILE=str(server.passwords))
    return root


def exported(root: Path, **environment: str) -> list[dict[str, str]]:
    run("nbgrader", "export", cwd=root, **environment)
    with (root / "grades.csv").open(newline="", encoding="utf-8") as file:
        return sorted(csv.DictReader(file), key=lambda row: row["student_id"])


def test_scores_and_export_are_those_of_sqlite(
    course: Path, graded_class: GradedClass, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", str(server.passwords))
    config = course_config(course)
    config.CourseDirectory.root = str(course)
    found = {score.student: score for score in scores(CourseDirectory(config=config), WEEK3)}
    assert found == standing(graded_class.root)
    assert exported(course) == exported(graded_class.root)
    assert not (course / "gradebook.db").exists()


@pytest.mark.nightly
def test_report_doctor_and_feedback_ask_the_database(course: Path, graded_class: GradedClass, server: Server) -> None:
    passwords = {"PGPASSFILE": str(server.passwords)}
    autograder("--root", str(course), "report", "--week", "3", **passwords)
    assert "Score distribution" in (course / "report" / f"{WEEK3}.html").read_text(encoding="utf-8")
    doctor = autograder("--root", str(course), "doctor", code=None, **passwords).stdout
    assert f"gradebook: {len(graded_class.students)} students, 1 assignments (postgresql)" in doctor
    autograder("--root", str(course), "feedback", "--week", "3", **passwords)
    assert len(list(course.glob(f"feedback/*/{WEEK3}/*.html"))) == len(graded_class.students)


@pytest.mark.nightly
def test_a_person_grades_in_formgrader(course: Path, server: Server, tmp_path: Path) -> None:
    environment = {"PGPASSFILE": str(server.passwords), "PYTHONPATH": str(COURSE)}
    with JupyterServer(course, tmp_path / "home", **environment) as jupyter:
        client = Client(jupyter.url)
        assert client.ask("/formgrader/manage_assignments")[0] == 200
        (submission,) = client.get(f"/formgrader/api/submitted_notebooks/{WEEK3}/{WEEK3}")[:1]
        status, page = client.ask(f"/formgrader/submissions/{submission['id']}/")
        assert status == 200 and "relative_proof" in page
        grades = client.get(f"/formgrader/api/grades?submission_id={submission['id']}")
        (proof,) = [grade for grade in grades if grade["name"] == "relative_proof"]
        client.send(f"/formgrader/api/grade/{proof['id']}", "PUT", manual_score=1.5)
        assert client.get(f"/formgrader/api/grade/{proof['id']}")["manual_score"] == 1.5


@pytest.mark.nightly
def test_a_copy_brings_everything_back(course: Path, server: Server) -> None:
    passwords = {"PGPASSFILE": str(server.passwords)}
    before = exported(course, **passwords)
    copy = f"/tmp/{server.port}.dump"
    server.shell("pg_dump", "--format=custom", f"--file={copy}", NAME)
    try:
        server.shell("dropdb", NAME)
        server.shell("createdb", "--owner", "grader", NAME)
        server.shell("pg_restore", f"--dbname={NAME}", copy)
    finally:
        os.unlink(copy)
    assert exported(course, **passwords) == before


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://grader:{wrong}@127.0.0.1:{port}/" + NAME, "cannot be reached"),
        ("postgresql://grader:{wrong}@127.0.0.1:1/" + NAME, "cannot be reached"),
        ("postgresql://grader:x@{wrong}@127.0.0.1:{port}/" + NAME, "no address of a database"),
        ("postgresql+psycopg2://grader:{wrong}@127.0.0.1:{port}/" + NAME, "a driver that is not installed"),
    ],
    ids=["wrong-password", "nobody-there", "unreadable", "no-driver"],
)
def test_what_is_wrong_is_said_without_the_password(
    graded_class: GradedClass, server: Server, tmp_path: Path, address: str, said: str
) -> None:
    wrong = "swordfish"
    root = with_address(graded_class.root, tmp_path / "course", address.format(wrong=wrong, port=server.port))
    found = autograder("--root", str(root), "autograde", "--week", "3", code=2).stderr
    assert said in found and "Traceback" not in found
    _, _, remedy = _gradebook(root)
    assert said in remedy
    stock = run("nbgrader", "export", cwd=root, code=None)
    assert stock.returncode != 0
    for shown in (found, remedy, stock.stdout, stock.stderr):
        assert wrong not in shown and "older nbgrader" not in shown
