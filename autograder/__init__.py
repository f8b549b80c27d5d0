"""The course's grader."""

import os
import sys
import sysconfig
from typing import Any

# On import jsonschema compiles a grammar of IRIs, which costs every process that reads a notebook most of a second.
# Without this module it leaves that format unchecked, and no notebook uses it.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None makes the import fail

# nbgrader runs `alembic` from PATH when it creates a gradebook, and the environment may not be activated.
os.environ["PATH"] = sysconfig.get_path("scripts") + os.pathsep + os.environ.get("PATH", os.defpath)


def load_ipython_extension(shell: Any) -> None:
    """Provide ``%grade 3.3`` in a notebook that runs ``%load_ext autograder``."""
    from autograder.magic import register

    register(shell)
