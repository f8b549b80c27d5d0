"""A JupyterHub for this course: everybody has an account on one machine. docs/jupyterhub.md says how to use it."""

from pathlib import Path

c = get_config()

INSTRUCTORS = {"hopper"}
STUDENTS = {"ada", "boole"}
ENVIRONMENT = Path("/opt/positional-encodings")  # the course's packages, readable by everybody
SETTINGS = Path("/srv/positional-encodings/hub")  # a copy of this folder, readable by everybody


def settings(spawner):
    """Where a server finds nbgrader's and JupyterLab's settings: an instructor's own come first."""
    own = ["instructor"] if spawner.user.name in {name.lower() for name in INSTRUCTORS} else []
    return ":".join(str(SETTINGS / who) for who in (*own, "everybody"))


c.JupyterHub.bind_url = "http://127.0.0.1:8000"  # put a web server with TLS in front
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.allowed_users = INSTRUCTORS | STUDENTS
c.PAMAuthenticator.open_sessions = False
c.Spawner.cmd = [str(ENVIRONMENT / "bin" / "jupyterhub-singleuser")]
c.Spawner.default_url = "/lab"
c.Spawner.environment = {
    "JUPYTER_CONFIG_PATH": settings,
    "PATH": f"{ENVIRONMENT}/bin:/usr/local/bin:/usr/bin:/bin",  # `nbgrader` in a terminal is the course's
    "VIRTUAL_ENV": str(ENVIRONMENT),  # and `make` takes this environment
}
