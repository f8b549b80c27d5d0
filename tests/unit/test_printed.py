"""Printed colours are kept, and no other escape sequence reaches a page."""

from hypothesis import given
from hypothesis import strategies as st
from nbconvert.filters.ansi import ansi2html

from autograder.grading.printed import with_colours_only

PIECES = [*"\x1b[m;?x\n1A520", "38", "48", "255", "999", "-1", "\x1b[31m", "\x1b[38"]


def test_colours_stay_and_other_commands_do_not() -> None:
    for coloured in ("\x1b[31mred\x1b[0m", "\x1b[1;38;5;202mbold\x1b[m", "\x1b[48;2;1;2;3mx"):
        assert with_colours_only(coloured) == coloured
    assert with_colours_only("\x1b[2K\x1b[38mx\x1b]0;title\x07\x1b[1;48;5m") == "[2K[38mx]0;title\x07[1;48;5m"


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_a_page_can_be_made_of_whatever_was_printed(text: str) -> None:
    assert "\x1b" not in ansi2html(with_colours_only(text))
