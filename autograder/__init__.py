"""The course's grader."""

import os
import sys
import sysconfig
from typing import Any

# On import jsonschema compiles a grammar of IRIs, most of a second of CPU in every process that reads a notebook. It
# leaves that format unchecked where this module is missing, and no notebook has one.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None is how an import is refused

# nbgrader calls alembic by its name when it opens a gradebook, and nobody has activated the environment.
os.environ["PATH"] = sysconfig.get_path("scripts") + os.pathsep + os.environ.get("PATH", os.defpath)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext autograder`` in a notebook: ``%grade 3.3``."""
    from autograder.magic import register

    register(shell)
