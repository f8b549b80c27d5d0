"""The course's grader."""

import os
import sysconfig
from typing import Any

# nbgrader runs `alembic` from PATH when it creates a gradebook, and the environment may not be activated.
os.environ["PATH"] = sysconfig.get_path("scripts") + os.pathsep + os.environ.get("PATH", os.defpath)


def load_ipython_extension(shell: Any) -> None:
    """Provide ``%grade 3.3`` in a notebook that runs ``%load_ext autograder``."""
    from autograder.magic import register

    register(shell)
