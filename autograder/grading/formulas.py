from autograder.grading.plugins.markdown import (
    markdown2html as markdown2html,  # the old name, for forks' nbgrader_config.py
)
