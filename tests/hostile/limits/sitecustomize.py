"""Smaller limits for the hostile class, so that its test ends within minutes.

Python imports this file at start where its folder stands in PYTHONPATH. It acts in the grading process only.
"""

import os
import sys

if "autograder.grading.service" in sys.orig_argv and "HOSTILE_LIMITS" in os.environ:
    import json

    from autograder.grading import sandbox

    small = sandbox.Limits(**json.loads(os.environ["HOSTILE_LIMITS"]))
    sandbox.Sandbox.__init__.__defaults__ = (*sandbox.Sandbox.__init__.__defaults__[:-1], small)
