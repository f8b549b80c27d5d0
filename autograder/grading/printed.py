"""What a cell has printed, as a page may show it: of a terminal's commands the colours, and those only."""

import re

CODE = r"(?:\d|2[1-9]|[34][0-79]|9[0-7]|10[0-7]|[34]8;5;\d{1,3}|[34]8;2(?:;\d{1,3}){3})"
NO_COLOUR = re.compile(rf"\x1b(?!\[(?:{CODE}(?:;{CODE})*)?m)")


def with_colours_only(text: str) -> str:
    """The text, in which no other escape begins a command: nbconvert cannot read all that there are."""
    return NO_COLOUR.sub("", text)
