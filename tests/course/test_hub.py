"""The course on a JupyterHub, with the files in docs/hub: separate accounts, the exchange, closed course root."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from documents import fences
from helpers import COURSE, wait_until
from web import Client, free_ports

from autograder.classroom import Student, make_course_root, simulate
from autograder.grading.sandbox.bubblewrap import why_not_isolated

pytestmark = pytest.mark.isolation
WEEK = "week1_permutation_equivariance"
INSTRUCTOR, COLLEAGUE, STUDENTS = "hub-hopper", "hub-noether", ("hub-ada", "hub-boole")
GROUP = "hub-instructors"
PASSWORD = "only for this test"
# Tries to open every path on its standard input; prints those that it can open.
LOOK = """
import os, sys
for path in sys.stdin.read().split("\\0"):
    try:
        os.scandir(path).close() if os.path.isdir(path) else open(path, "rb").close()
        print(path)
    except OSError:
        pass
"""


def runnable_python() -> str | None:
    """Return a Python like ours that every account may start: ours may be in root's own folder."""
    site = Path(find_spec("nbgrader").origin).parents[1]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (os.path.realpath(sys.executable), shutil.which(version, path="/usr/local/bin:/usr/bin")):
        code = f"import sys; sys.path.append({str(site)!r}); import traitlets"
        if python and _as("nobody", python, "-c", code, check=False).returncode == 0:
            return python
    return None


def why_not_here() -> str:
    if os.name != "posix" or os.geteuid() != 0 or not shutil.which("useradd"):
        return "accounts can be made only by root, on Linux, with useradd"
    if find_spec("jupyterhub") is None:
        return "JupyterHub is not installed (pip install '.[hub]')"
    if shutil.which("configurable-http-proxy") is None:
        return "JupyterHub's proxy is not installed (npm install -g configurable-http-proxy)"
    if problem := why_not_isolated():
        return problem
    if runnable_python() is None:
        return "there is no Python of this version that other accounts may start, or its packages are closed to them"
    return ""


@dataclass
class Hub:
    place: Path
    course: Path
    python: Path
    clients: dict[str, Client]
    answers: list[Student]

    def home(self, name: str) -> Path:
        return self.place / "home" / name

    def client(self, name: str) -> Client:
        return self.clients[name]


@pytest.fixture
def hub() -> Iterator[Hub]:
    if reason := why_not_here():
        pytest.skip(reason)
    place = Path(tempfile.mkdtemp(prefix="hub-"))  # pytest's own folders are closed to other accounts
    place.chmod(0o755)
    names = (INSTRUCTOR, COLLEAGUE, *STUDENTS)
    process = None
    try:
        for name in names:
            _make_account(place, name)
        python = _environment(place)
        course = place / "home" / INSTRUCTOR / "positional-encodings"
        answers = _course(place, course)
        port = _configure(place)
        command = [str(python), "-m", "jupyterhub", "--config", str(place / "hub.py")]
        with (place / "hub.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=place, stdout=log, stderr=log, env=_clean_environment(python))
        clients = {name: Client(f"http://127.0.0.1:{port}") for name in (INSTRUCTOR, *STUDENTS)}
        wait_until(lambda: process.poll() is not None or _answers(clients[INSTRUCTOR]), "an answer of the hub")
        assert process.poll() is None, (place / "hub.log").read_text()[-3000:]
        for name, client in clients.items():
            _start_server(client, name)
        yield Hub(place, course, python, clients, answers)
    finally:
        if process is not None:
            process.terminate()
            process.wait()
        for name in names:
            subprocess.run(["userdel", name], capture_output=True, check=False)
        subprocess.run(["groupdel", GROUP], capture_output=True, check=False)
        shutil.rmtree(place)


def test_a_week_on_a_hub(hub: Hub) -> None:
    teacher, ada = hub.client(INSTRUCTOR), hub.client(STUDENTS[0])
    api, mine = (
        f"/user/{INSTRUCTOR}/formgrader/api",
        "assignments/{}?course_id=positional_encodings&assignment_id=" + WEEK,
    )

    def exchange(client: Client, name: str, action: str) -> list[dict]:
        done = client.send(f"/user/{name}/{mine.format(action)}")
        assert done["success"], done
        return done["value"]

    def press(button: str) -> None:
        """Press one of formgrader's buttons."""
        done = teacher.send(f"{api}/{button}")
        assert done["success"], done

    # Only the instructor has Formgrader and Create Assignment.
    assert teacher.ask(f"/user/{INSTRUCTOR}/formgrader/manage_assignments")[0] == 200
    assert ada.ask(f"/user/{STUDENTS[0]}/formgrader/manage_assignments")[0] == 404
    for name, client in hub.clients.items():
        off = _disabled(client, name)
        assert all(
            (f"@jupyter/nbgrader:{part}" in off) is (name != INSTRUCTOR) for part in ("formgrader", "create-assignment")
        )

    press(f"assignment/{WEEK}/release")
    for name, student in zip(STUDENTS, hub.answers, strict=True):
        exchange(hub.client(name), name, "fetch")
        answer = hub.place / "answers" / "submitted" / student.name / WEEK / f"{WEEK}.ipynb"
        shutil.copyfile(answer, hub.home(name) / WEEK / f"{WEEK}.ipynb")
        exchange(hub.client(name), name, "submit")

    press(f"assignment/{WEEK}/collect")
    for name, student in zip(STUDENTS, hub.answers, strict=True):
        press(f"submission/{WEEK}/{name}/autograde")
        assert teacher.get(f"{api}/submission/{WEEK}/{name}")["score"] == student.total

    # Grade by hand: a text answer gets its points in the page that a person sees.
    (submission,) = [
        each for each in teacher.get(f"{api}/submitted_notebooks/{WEEK}/{WEEK}") if each["student"] == STUDENTS[0]
    ]
    assert submission["needs_manual_grade"]
    status, page = teacher.ask(f"/user/{INSTRUCTOR}/formgrader/submissions/{submission['id']}/")
    assert status == 200 and "submission_secret.txt" not in page
    grades = teacher.get(f"{api}/grades?submission_id={submission['id']}")
    waiting = [grade for grade in grades if grade["needs_manual_grade"] and grade["auto_score"] is None]
    teacher.send(f"{api}/grade/{waiting[0]['id']}", "PUT", manual_score=1.0)
    assert teacher.get(f"{api}/submission/{WEEK}/{STUDENTS[0]}")["score"] == hub.answers[0].total + 1

    for name in STUDENTS:
        press(f"assignment/{WEEK}/{name}/generate_feedback")
        press(f"assignment/{WEEK}/{name}/release_feedback")
        exchange(hub.client(name), name, "fetch_feedback")
        (feedback,) = hub.home(name).glob(f"{WEEK}/feedback/*/{WEEK}.html")
        assert "points" in feedback.read_text(encoding="utf-8")

    _closed_to_students(hub)
    _open_to_write_is_refused(hub)
    _colleagues_share_one_course(hub)


def _closed_to_students(hub: Hub) -> None:
    """A student's account can read neither the course root nor anybody else's work."""
    theirs = [hub.course, *hub.course.rglob("*")]
    # In the exchange a submission has a name that cannot be guessed, in a folder that cannot be listed.
    theirs.append(hub.place / "exchange" / "positional_encodings" / "inbound")
    assert len(theirs) > 50 and hub.course / "gradebook.db" in theirs
    for name in STUDENTS:
        own, *others = (hub.home(who) / WEEK / f"{WEEK}.ipynb" for who in sorted(STUDENTS, key=lambda who: who != name))
        looked_for = "\0".join(map(str, [own, *theirs, *others]))
        assert _as(name, str(hub.python), "-c", LOOK, input=looked_for).stdout.splitlines() == [str(own)]


def _open_to_write_is_refused(hub: Hub) -> None:
    """The guide's warning is true: with an open course root nothing is graded, and doctor says so."""
    hub.course.chmod(0o757)
    command = [str(hub.python.parent / "nbgrader"), "autograde", WEEK, "--student", STUDENTS[0], "--force"]
    done = _as(INSTRUCTOR, *command, cwd=hub.course, check=False)
    assert done.returncode != 0 and f"everybody on this machine may change {hub.course}" in done.stderr
    doctor = _as(INSTRUCTOR, str(hub.python), "-m", "autograder", "doctor", cwd=hub.course, check=False).stdout
    assert "FAIL course root: everybody on this machine may change" in doctor and f"chmod 700 {hub.course}" in doctor


def _colleagues_share_one_course(hub: Hub) -> None:
    """With the guide's own commands, one colleague regrades, in a new gradebook, and collects what the other released."""
    texts = [fence.text for fence in fences(COURSE / "docs" / "jupyterhub.md")]
    commands = "\n".join(text for text in texts if "groupadd" in text or "chgrp instructors" in text)
    (settings,) = (text for text in texts if "groupshared" in text)
    homes = hub.place / "home"
    for theirs, ours in {
        "/home/hopper": homes / INSTRUCTOR,
        "/home/noether": homes / COLLEAGUE,
        " instructors": f" {GROUP}",
        " hopper": f" {INSTRUCTOR}",
        " noether": f" {COLLEAGUE}",
        "/srv/nbgrader/exchange": hub.place / "exchange",
    }.items():
        assert theirs in commands
        commands = commands.replace(theirs, str(ours))
    (hub.course / "gradebook.db").unlink()
    shutil.rmtree(hub.place / "exchange" / "positional_encodings")
    subprocess.run(["bash", "-ec", commands], check=True)
    with (hub.course / "nbgrader_config.py").open("a", encoding="utf-8") as config:
        config.write(settings)
    found = ":".join(str(hub.place / "settings" / who) for who in ("instructor", "everybody"))

    def run(name: str, *command: str) -> None:
        own = "env", f"JUPYTER_CONFIG_PATH={found}", f"HOME={homes / name}", str(hub.python.parent / "nbgrader")
        _as(name, *own, *command, cwd=homes / name / "positional-encodings")

    for command in ("release_assignment", "autograde"):
        for name in (INSTRUCTOR, COLLEAGUE):
            run(name, command, WEEK, "--force")
    run(COLLEAGUE, "collect", WEEK)


# ---- what the test needs to be there --------------------------------------------------------------------------------


def _as(name: str, *command: str, check: bool = True, **options: object) -> subprocess.CompletedProcess:
    """Run a command as another account, with its rights and nothing of our environment."""
    clean = ["runuser", "-u", name, "--", "env", "-i", f"HOME=/tmp/{name}", "PATH=/usr/bin:/bin", "LANG=C.UTF-8"]
    done = subprocess.run([*clean, *command], capture_output=True, text=True, check=False, **{"cwd": "/", **options})
    assert not check or done.returncode == 0, done.stderr
    return done


def _make_account(place: Path, name: str) -> None:
    home = place / "home" / name
    home.mkdir(parents=True)
    subprocess.run(["userdel", name], capture_output=True, check=False)  # left by a test that was killed
    subprocess.run(["useradd", "--no-create-home", "--home-dir", home, "--shell", "/bin/bash", name], check=True)
    subprocess.run(["chpasswd"], input=f"{name}:{PASSWORD}\n", text=True, check=True)
    shutil.chown(home, name, name)
    home.chmod(0o755 if name == INSTRUCTOR else 0o700)  # the course root must be closed on its own


def _environment(place: Path) -> Path:
    """Put the tests' packages into an environment that every account may use; return its Python."""
    python, target, site = runnable_python(), place / "environment", Path(find_spec("nbgrader").origin).parents[1]
    (target / "bin").mkdir(parents=True)
    (target / "lib" / site.parent.name).mkdir(parents=True)
    (target / "lib" / site.parent.name / "site-packages").symlink_to(site)
    for folder in ("share", "etc"):
        (target / folder).symlink_to(Path(sys.prefix) / folder)
    (target / "bin" / "python").symlink_to(python)
    (target / "pyvenv.cfg").write_text(f"home = {Path(python).parent}\ninclude-system-site-packages = false\n")
    programs = {"jupyterhub-singleuser": "jupyterhub.singleuser", "nbgrader": "nbgrader", "alembic": "alembic"}
    for program, module in programs.items():
        script = target / "bin" / program
        script.write_text(f'#!/bin/sh\nexec {target}/bin/python -m {module} "$@"\n')
        script.chmod(0o755)
    return target / "bin" / "python"


def _clean_environment(python: Path) -> dict[str, str]:
    """Return the hub's environment, without PYTHONPATH, which the hub would pass on to everybody's server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JUPYTER", "VIRTUAL"))}
    return {**kept, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}


def _course(place: Path, course: Path) -> list[Student]:
    """Make the course root in the instructor's home, closed as the guide says; return two students with submissions."""
    make_course_root(COURSE, course, [WEEK])
    shutil.copytree(COURSE / "notebooks" / WEEK, course / "notebooks" / WEEK)
    shutil.copytree(COURSE / "autograder", course / "autograder", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["chown", "-R", f"{INSTRUCTOR}:", course], check=True)
    course.chmod(0o700)
    make_course_root(COURSE, place / "answers", [WEEK])
    return simulate(COURSE, place / "answers", WEEK, count=2)


def _configure(place: Path) -> int:
    """Copy docs/hub with this test's folders and names and free ports; return the port to talk to."""
    settings, ports = place / "settings", free_ports(3)
    shutil.copytree(COURSE / "docs" / "hub", settings)
    (place / "exchange").mkdir()
    (place / "exchange").chmod(0o777)
    for old, new in {
        "/srv/nbgrader/exchange": place / "exchange",
        "/opt/positional-encodings": place / "environment",
        "/srv/positional-encodings/hub": settings,
        "http://127.0.0.1:8000": f"http://127.0.0.1:{ports[0]}",
        '{"hopper"}': {INSTRUCTOR},
        '{"ada", "boole"}': set(STUDENTS),
    }.items():
        texts = {path: path.read_text() for path in settings.rglob("*.py")}
        assert any(old in text for text in texts.values()), old
        for path, text in texts.items():
            path.write_text(text.replace(old, str(new)))
    (place / "hub.py").write_text(
        f"load_subconfig('jupyterhub_config.py', path={str(settings)!r})\n"
        f"c.JupyterHub.hub_port = {ports[1]}\n"
        f"c.ConfigurableHTTPProxy.api_url = 'http://127.0.0.1:{ports[2]}'\n"
        "c.ConfigurableHTTPProxy.debug = False\n"
    )
    return ports[0]


def _answers(client: Client) -> bool:
    try:
        return client.ask("/hub/login")[0] == 200
    except OSError:
        return False


def _start_server(client: Client, name: str) -> None:
    """Log in with the account's password and wait until the account's own JupyterLab is ready."""
    client.ask("/hub/login")
    status, page = client.ask("/hub/login?next=/hub/home", "POST", form={"username": name, "password": PASSWORD})
    assert status == 200 and "Invalid username" not in page, page[-2000:]
    client.ask(f"/hub/api/users/{name}/server", "POST")
    wait_until(
        lambda: client.get(f"/hub/api/users/{name}")["servers"].get("", {}).get("ready", False), f"{name}'s server"
    )
    status, page = client.ask(f"/user/{name}/lab")
    assert status == 200, page[-2000:]


def _disabled(client: Client, name: str) -> list[str]:
    """Return the JupyterLab extensions that its page lists as disabled."""
    _, page = client.ask(f"/user/{name}/lab")
    config = page.partition('id="jupyter-config-data"')[2].partition(">")[2].partition("</script>")[0]
    return json.loads(config)["disabledExtensions"]
