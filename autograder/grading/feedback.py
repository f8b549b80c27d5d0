"""The old name of `plugins.feedback`, for forks whose nbgrader_config.py uses it. Also applies `nbgrader_patches`."""

from typing import Any


def __getattr__(name: str) -> Any:
    from autograder.grading.plugins import feedback, nbgrader_patches

    nbgrader_patches.apply()
    return getattr(feedback, name)
