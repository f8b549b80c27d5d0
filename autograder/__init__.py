"""The course's grader."""

import sys

# On import jsonschema compiles a grammar of IRIs, most of a second of CPU in every process that reads a notebook. It
# leaves that format unchecked where this module is missing, and no notebook has one.
sys.modules.setdefault("rfc3987_syntax", None)
