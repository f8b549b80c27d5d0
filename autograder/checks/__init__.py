"""Hidden tests, one module per week. `autograder.checks.framework` says how they are written."""
