"""Makes a cell's printed text safe to show: of the terminal commands in it, only colours and styles remain."""

import re

CODE = r"(?:\d|2[1-9]|[34][0-79]|9[0-7]|10[0-7]|[34]8;5;\d{1,3}|[34]8;2(?:;\d{1,3}){3})"
NO_COLOUR = re.compile(rf"\x1b(?!\[(?:{CODE}(?:;{CODE})*)?m)")


def with_colours_only(text: str) -> str:
    """Remove the escape character of every other command, because nbconvert cannot read them all."""
    return NO_COLOUR.sub("", text)
