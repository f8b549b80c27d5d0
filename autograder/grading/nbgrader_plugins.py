"""The old name of `plugins`, for forks whose nbgrader_config.py names it; it also applies the patches those lack."""

from typing import Any


def __getattr__(name: str) -> Any:
    from autograder.grading.plugins import exporter, nbgrader_patches, preprocessors

    nbgrader_patches.apply()
    return getattr(exporter, name, None) or getattr(preprocessors, name)
