"""The former name of `result_cache`, for the grading code that is being rewritten."""

from autograder.checks.result_cache import ResultCache as Memory

__all__ = ["Memory"]
