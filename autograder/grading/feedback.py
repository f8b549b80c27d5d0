from autograder.grading.plugins.feedback import *  # noqa: F403  the old name, for forks' nbgrader_config.py
