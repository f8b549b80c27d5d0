"""The old name of `plugins`, for forks whose nbgrader_config.py uses it. Also applies `nbgrader_patches`."""

from typing import Any


def __getattr__(name: str) -> Any:
    from autograder.grading.plugins import exporter, nbgrader_patches, preprocessors

    nbgrader_patches.apply()
    return getattr(exporter, name, None) or getattr(preprocessors, name)
