from autograder.grading.plugins.export import *  # noqa: F403  the old name, for forks' nbgrader_config.py
