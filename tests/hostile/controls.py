"""Honest work and honest mistakes. Each gets exactly its due, whatever the rest of the class does."""

import json

from hostile.bank import (
    ALL,
    COURSE,
    FREQ,
    GOOD,
    HAND,
    RIGHT_FREQ,
    RIGHT_HAND,
    RIGHT_ROT,
    ROT,
    ROT_BODY,
    ROT_HEAD,
    WEEK,
    Submission,
    entry,
)


def course_solution(name: str) -> str:
    notebook = json.loads((COURSE / "solutions" / WEEK / f"{WEEK}.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == name:
            return "".join(cell["source"])
    raise KeyError(name)


@entry("control", ALL, by_hand=("relative_proof", "bfloat16_explained"))
def all_right(s: Submission) -> None:
    for graded in ALL:
        name = graded.removesuffix("_tests")
        s.answer(name, course_solution(name))
    s.answer("relative_proof", "Because $R(a)^\\top R(b) = R(b-a)$.")
    s.answer("bfloat16_explained", "Eight bits of precision, so 257 falls on 256.")


@entry("control", GOOD)
def two_right(s: Submission) -> None:
    s.good()


@entry("control", GOOD)
def two_right_again(s: Submission) -> None:
    s.good()


@entry("control", {HAND: 3.0})
def hand_only(s: Submission) -> None:
    s.answer("rotate_by_hand", RIGHT_HAND)


@entry("control")
def nothing_answered(s: Submission) -> None:
    pass


@entry("control", {FREQ: 1.5, ROT: 6.0})
def forgot_the_odd_case(s: Submission) -> None:
    s.good()
    s.answer("rope_frequencies", RIGHT_FREQ.replace("if head_dim % 2:", "if False:"))


@entry("control", {FREQ: 1.5})
def forgot_the_base(s: Submission) -> None:
    s.answer("rope_frequencies", RIGHT_FREQ.replace("return base **", "return 10000.0 **"))


@entry("control", {ROT: 5.5})
def cut_the_gradient(s: Submission) -> None:
    s.answer("apply_rotary_emb", ROT_HEAD + "\n    x = x.detach()" + ROT_BODY)


@entry("control", {ROT: 5.5})
def works_in_place(s: Submission) -> None:
    """Right values, but x is overwritten: this costs the last criterion and no other."""
    s.answer("apply_rotary_emb", RIGHT_ROT.replace(ROT_HEAD, "def turned(x, positions, base):") + "\n" + ROT_HEAD
             + "\n    result = turned(x, positions, base)\n    x.data.copy_(result.detach())\n    return result")


@entry("control", GOOD)
def prints_and_warns(s: Submission) -> None:
    s.answer("rope_frequencies", RIGHT_FREQ)
    s.answer("apply_rotary_emb", ROT_HEAD + "\n    import sys, warnings, logging\n    print('called', x.shape)\n"
             "    print('oops', file=sys.stderr)\n    warnings.warn('careful')\n    logging.getLogger().error('logged')" + ROT_BODY)


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


@entry("control", {FREQ: 2.0})
def indentation_with_tabs(s: Submission) -> None:
    s.answer("rope_frequencies", RIGHT_FREQ.replace("    ", "\t"))


@entry("control", GOOD)
def figure_and_saved_outputs(s: Submission) -> None:
    s.good()
    s.cell("rope_frequencies_check")["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["Looks right.\n"]}]
    s.add("plt.imshow(np.eye(4)); plt.show()", after="rope_frequencies")
