"""Code in the sentences of a page."""

import pytest

from autograder.grading.plugins.code import code_in


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        (
            "`view` needs contiguous memory, `reshape` does not.",
            "<code>view</code> needs contiguous memory, <code>reshape</code> does not.",
        ),
        ("a < b & `x<y>`", "a &lt; b &amp; <code>x&lt;y&gt;</code>"),
        ("one ` alone, two `` and `\nover lines`", "one ` alone, two `` and `\nover lines`"),
        ("</td><script>`", "&lt;/td&gt;&lt;script&gt;`"),
    ],
)
def test_what_stands_in_backticks_is_code_and_all_else_is_text(sentence: str, shown: str) -> None:
    assert code_in(sentence) == shown
