"""Honest work and honest mistakes. Each gets exactly its due, whatever the rest of the class does."""

from hostile.bank import (
    ALL,
    FREQ,
    GOOD,
    RIGHT_FREQ,
    RIGHT_ROT,
    ROT,
    Submission,
    entry,
)


@entry("control", ALL, by_hand=("relative_proof", "bfloat16_explained"))
def all_right(s: Submission) -> None:
    s.solve()
    s.answer("relative_proof", "Because $R(a)^\\top R(b) = R(b-a)$.")
    s.answer("bfloat16_explained", "Eight bits of precision, so 257 falls on 256.")


@entry("control", GOOD)
def two_right(s: Submission) -> None:
    s.good()


@entry("control")
def nothing_answered(s: Submission) -> None:
    pass


@entry("control", {FREQ: 1.5})
def forgot_the_base(s: Submission) -> None:
    s.answer("rope_frequencies", RIGHT_FREQ.replace("return base **", "return 10000.0 **"))


@entry("control", GOOD)
def helpers_in_extra_cells(s: Submission) -> None:
    s.add("def my_speeds(d, base):\n    return base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)")
    s.add("# Thoughts\n\nI like *clocks*; is 3 < 4?", cell_type="markdown")
    s.answer("rope_frequencies", RIGHT_FREQ.replace("base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)",
                                                    "my_speeds(head_dim, base)"))
    s.answer("apply_rotary_emb", RIGHT_ROT)
    s.add("rope_frequencies(8), plt.plot([1, 2])", after="rope_frequencies")


@entry("control", GOOD)
def reordered_cells(s: Submission) -> None:
    s.good()
    cells = s.nb["cells"]
    moved = s.cell("apply_rotary_emb")
    cells.remove(moved)
    cells.insert(cells.index(s.cell("setup")) + 1, moved)
    cells.append(cells.pop(cells.index(s.cell("rope_frequencies_tests"))))


@entry("control", GOOD)
def broken_experiment_cell(s: Submission) -> None:
    s.good()
    s.tagged("experiment")["source"] = "raise RuntimeError('my experiment is broken')"
    s.add("1 / 0", after="rope_frequencies")


@entry("control", {ROT: 6.0})
def syntax_error_in_one_answer(s: Submission) -> None:
    s.good()
    s.answer("rope_frequencies", "def rope_frequencies(head_dim, base=10000.0)\n    return base")
