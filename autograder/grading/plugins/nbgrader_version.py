"""The version of nbgrader that the plug-ins and patches were written for."""

import nbgrader

WRITTEN_FOR = "0.9.6"


def wrong_version() -> str:
    """Return what to do if the patches do not fit the installed nbgrader; empty if they do."""
    if nbgrader.__version__ == WRITTEN_FOR:
        return ""
    return (
        f"nbgrader {nbgrader.__version__} is installed, and this grader was written for {WRITTEN_FOR}: "
        f"pip install nbgrader=={WRITTEN_FOR}"
    )
