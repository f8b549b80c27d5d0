from autograder.grading.plugins.mathml import markdown2html as markdown2html  # the old name, for forks' nbgrader_config.py
