"""Files as they really arrive: broken, renamed, re-encoded, deformed. Unreadable ones are ungradable with a reason."""

import copy
import json
import os
import shutil

from hostile.bank import (
    CANARY,
    COURSE,
    FREQ,
    GOOD,
    RIGHT_FREQ,
    RIGHT_ROT,
    ROT,
    SCRIPT,
    WEEK,
    WRONG_ROT,
    Submission,
    entry,
)

# ---- what cannot be read --------------------------------------------------------------------------------------------


def broken(name: str, pattern: str, data: bytes) -> None:
    def make(s: Submission) -> None:
        s.write(data=data)

    make.__name__ = name
    entry("mess", ungradable=pattern)(make)


broken("empty_file", "empty", b"")
broken("only_spaces", "not a notebook", b"   \n\n")
broken("not_json", "not a notebook", b"import torch\nprint('my notebook')\n")
broken("binary", "not a notebook", bytes(range(256)) * 50)
broken("html_of_a_login_page", "not a notebook", b"<!DOCTYPE html><html><script>hostile_xss()</script></html>")
broken("json_list", "not a notebook", b"[1, 2, 3]")
broken("json_string", "not a notebook", b'"hello"')
broken("json_no_cells", "no cells", b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}')
broken("cells_of_wrong_type", "no cells", b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": {"a": 1}}')
broken("deep_json", "not a notebook", b'{"cells": ' + b"[" * 200_000 + b"]" * 200_000 + b"}")
broken("huge_integer", "not a notebook", b'{"cells": [], "nbformat": ' + b"9" * 20_000 + b"}")
broken("latin_1", "not a notebook", '{"cells": [], "x": "é"}'.encode("latin-1"))
broken("utf16_cut_off", "not a notebook", '{"cells": []}'.encode("utf-16")[:-3])
broken("zip_instead", "not a notebook", b"PK\x03\x04" + bytes(200))


@entry("mess", ungradable="not a notebook")
def truncated(s: Submission) -> None:
    s.good()
    text = json.dumps(s.nb)
    s.write(data=text[: len(text) * 2 // 3])


@entry("mess", ungradable="not a notebook")
def merge_conflict(s: Submission) -> None:
    s.write(data="<<<<<<< HEAD\n" + json.dumps(s.nb) + "\n=======\n>>>>>>> theirs\n")


@entry("mess", ungradable="more than .* cells")
def too_many_cells(s: Submission) -> None:
    s.nb["cells"] += [{"cell_type": "code", "metadata": {}, "source": "1", "outputs": [], "execution_count": None}] * 2500
    s.write()


@entry("mess", ungradable="not a regular file")
def directory_named_like_the_notebook(s: Submission) -> None:
    (s.folder / f"{WEEK}.ipynb").mkdir()
    s.written = True


@entry("mess", ungradable="not a regular file")
def fifo_instead_of_the_file(s: Submission) -> None:
    os.mkfifo(s.folder / f"{WEEK}.ipynb")
    s.written = True


@entry("mess", ungradable="link")
def symlink_to_another_student(s: Submission) -> None:
    os.symlink(s.root / "submitted" / "two_right" / WEEK / f"{WEEK}.ipynb", s.folder / f"{WEEK}.ipynb")
    s.written = True


@entry("mess", ungradable="link")
def symlink_to_the_source(s: Submission) -> None:
    os.symlink(s.root / "source" / WEEK / f"{WEEK}.ipynb", s.folder / f"{WEEK}.ipynb")
    s.written = True


@entry("mess", ungradable="link|cannot be read")
def symlink_to_nothing(s: Submission) -> None:
    os.symlink("/nowhere/at/all", s.folder / f"{WEEK}.ipynb")
    s.written = True


@entry("mess", ungradable="link|cannot be read")
def symlink_to_itself(s: Submission) -> None:
    os.symlink(f"{WEEK}.ipynb", s.folder / f"{WEEK}.ipynb")
    s.written = True


@entry("mess", ungradable="link")
def symlink_to_a_device(s: Submission) -> None:
    os.symlink("/dev/zero", s.folder / f"{WEEK}.ipynb")
    s.written = True


@entry("mess", ungradable="link")
def symlinked_folder(s: Submission) -> None:
    s.folder.rmdir()
    os.symlink(s.root / "submitted" / "two_right" / WEEK, s.folder)
    s.written = True


@entry("mess", ungradable="no week3_rope.ipynb")
def no_notebook_at_all(s: Submission) -> None:
    (s.folder / "essay.docx").write_bytes(b"PK")
    s.written = True


@entry("mess", ungradable="no week3_rope.ipynb")
def two_notebooks_of_other_names(s: Submission) -> None:
    s.good()
    s.write("final.ipynb")
    s.write("final (2).ipynb")


# ---- what can be read all the same ----------------------------------------------------------------------------------


@entry("mess", GOOD)
def renamed(s: Submission) -> None:
    s.good()
    s.write("Week 3 – RoPE (final).ipynb")


@entry("mess", GOOD)
def odd_stray_files(s: Submission) -> None:
    s.good()
    for name in (f"<img src=x onerror={SCRIPT}()>.txt", "$(touch pwned).txt", "a\nb.txt", "`id`.py", "-rf", "%s%n", "名前.txt", "*.ipynb.txt"):
        (s.folder / name).write_text("x")
    with open(os.fsencode(s.folder) + b"/\xff\xfe.txt", "w") as file:
        file.write("x")
    os.symlink("/etc/passwd", s.folder / "passwd")
    os.symlink("/", s.folder / "everything")
    os.mkfifo(s.folder / "pipe")
    (s.folder / "folder" / "deeper").mkdir(parents=True)


@entry("mess", GOOD)
def many_stray_files(s: Submission) -> None:
    s.good()
    for n in range(3000):  # half before the notebook, half after it
        (s.folder / f"{'ax'[n % 2]}{n}").touch()


@entry("mess", GOOD)
def windows_line_ends(s: Submission) -> None:
    s.good()
    for cell in s.nb["cells"]:
        cell["source"] = "".join(cell["source"]).replace("\n", "\r\n")
    s.write(data=json.dumps(s.nb, indent=1).replace("\n", "\r\n"))


@entry("mess", GOOD)
def byte_order_mark(s: Submission) -> None:
    s.good()
    s.write(data=b"\xef\xbb\xbf" + json.dumps(s.nb).encode())


@entry("mess", GOOD)
def utf_16(s: Submission) -> None:
    s.good()
    s.write(data=json.dumps(s.nb, ensure_ascii=False).encode("utf-16"))


@entry("mess", GOOD)
def utf_16_big_endian(s: Submission) -> None:
    s.good()
    s.write(data=b"\xfe\xff" + json.dumps(s.nb).encode("utf-16-be"))


@entry("mess", GOOD)
def nbformat_3(s: Submission) -> None:
    s.good()
    cells = []
    for cell in s.nb["cells"]:
        source = "".join(cell["source"])
        common = {"metadata": cell["metadata"]}
        cells.append({"cell_type": "code", "input": source, "language": "python", "outputs": [], "collapsed": False, **common}
                     if cell["cell_type"] == "code" else {"cell_type": "markdown", "source": source, **common})
    s.write(data=json.dumps({"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": "x"}, "worksheets": [{"cells": cells, "metadata": {}}]}))


@entry("mess", GOOD)
def nbformat_4_0(s: Submission) -> None:
    s.good()
    for cell in s.nb["cells"]:
        cell.pop("id", None)
    s.nb["nbformat_minor"] = 0


@entry("mess", GOOD)
def nbformat_from_the_future(s: Submission) -> None:
    s.good()
    s.nb |= {"nbformat": 99, "nbformat_minor": 7, "new_things": {"a": 1}}


@entry("mess", GOOD)
def ids_missing(s: Submission) -> None:
    s.good()
    for cell in s.nb["cells"]:
        cell.pop("id", None)


@entry("mess", GOOD)
def ids_all_equal(s: Submission) -> None:
    s.good()
    for cell in s.nb["cells"]:
        cell["id"] = "same"


@entry("mess", GOOD)
def ids_of_wrong_type(s: Submission) -> None:
    s.good()
    for n, cell in enumerate(s.nb["cells"]):
        cell["id"] = [n, None, {"a": 1}, "x" * 5000, 3.5, "<b>"][n % 6]


@entry("mess", GOOD)
def metadata_stripped(s: Submission) -> None:
    s.good()
    for cell in s.nb["cells"]:
        cell["metadata"] = {}
    s.nb["metadata"] = {}


@entry("mess", GOOD)
def metadata_and_ids_stripped(s: Submission) -> None:
    s.good()
    for cell in s.nb["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)


@entry("mess", GOOD)
def metadata_of_wrong_types(s: Submission) -> None:
    s.good()
    odd = [None, [], "x", 5, {"nbgrader": []}, {"nbgrader": {"grade_id": ["a"]}}, {"nbgrader": {"grade_id": 5}, "tags": "x"},
           {"tags": {"a": []}}]
    for n, cell in enumerate(s.nb["cells"]):
        if not cell["metadata"].get("nbgrader", {}).get("solution"):
            cell["metadata"] = odd[n % len(odd)]
    s.nb["metadata"] = ["kernelspec"]


@entry("mess", GOOD)
def metadata_deep(s: Submission) -> None:
    s.good()
    deep: dict = {}
    for _ in range(400):
        deep = {"a": [deep]}
    s.nb["metadata"]["deep"] = deep
    s.cell("apply_rotary_emb")["metadata"]["deep"] = deep
    s.cell("apply_rotary_emb")["attachments"] = deep


@entry("mess", GOOD)
def sources_of_wrong_types(s: Submission) -> None:
    s.good()
    s.cell("setup")["source"] = None
    s.cell(FREQ)["source"] = {"a": 1}
    s.cell("rope_frequencies")["source"] = [*RIGHT_FREQ.splitlines(keepends=True), None, 5]
    s.nb["cells"] += [None, 5, "cell", [], {}, {"cell_type": 7, "source": 8, "outputs": 9}]


@entry("mess", GOOD)
def outputs_of_wrong_types(s: Submission) -> None:
    s.good()
    odd = [None, 5, "text", {"output_type": 5}, {"output_type": "stream", "text": 7}, {"data": []}, {"data": {"image/png": ["x"]}},
           {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" + "<script>"}}, {"text": ["a", None, 5, {}]}]
    for cell in s.nb["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = odd


@entry("mess", GOOD)
def saved_text_that_cannot_be_encoded(s: Submission) -> None:
    """Lone surrogates: valid JSON, but no UTF-8."""
    s.good()
    s.tagged("experiment")["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["\ud800 \x00 \udfff"]}]
    s.add("text \ud800 \udfff", cell_type="markdown")
    s.add("x = '\ud800'")


@entry("mess", GOOD)
def json_with_nan_and_duplicate_keys(s: Submission) -> None:
    s.good()
    text = json.dumps(s.nb)
    s.write(data='{"nbformat": 3, "x": NaN, "y": -Infinity, "cells": 5, ' + text[1:])


@entry("mess", GOOD)
def sixty_megabytes_of_output(s: Submission) -> None:
    s.good()
    s.cell("rope_frequencies_check")["outputs"] = [
        {"output_type": "stream", "name": "stdout", "text": ["x" * 99 + "\n"] * 300_000},
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * 30_000_000}}]


@entry("mess", GOOD)
def wrong_kernel(s: Submission) -> None:
    s.good()
    s.nb["metadata"] = {"kernelspec": {"name": "evil; touch /tmp/" + CANARY, "display_name": "<script>", "language": "R"},
                        "language_info": {"name": "R", "pygments_lexer": 7}}


@entry("mess", GOOD)
def no_kernel(s: Submission) -> None:
    s.good()
    s.nb["metadata"] = {}


@entry("mess", {FREQ: 2.0})
def copied_with_its_grade_id(s: Submission) -> None:
    """The right answer, and below it a copy of the cell with a wrong one: the last counts, and the student is told."""
    s.good()
    twin = copy.deepcopy(s.cell("apply_rotary_emb"))
    twin |= {"source": WRONG_ROT, "id": "twin"}
    s.nb["cells"].insert(s.nb["cells"].index(s.cell("apply_rotary_emb")) + 1, twin)


@entry("mess", GOOD)
def copied_and_then_right(s: Submission) -> None:
    s.good()
    twin = copy.deepcopy(s.cell("apply_rotary_emb"))
    s.answer("apply_rotary_emb", WRONG_ROT)
    s.nb["cells"].insert(s.nb["cells"].index(s.cell("apply_rotary_emb")) + 1, twin)


@entry("mess", GOOD)
def answers_retyped(s: Submission) -> None:
    s.good()
    for name, kind in (("rope_frequencies", "raw"), ("apply_rotary_emb", "markdown")):
        cell = s.cell(name)
        cell["cell_type"] = kind
        cell.pop("outputs"), cell.pop("execution_count")


@entry("mess", {FREQ: 2.0})
def answer_cell_deleted(s: Submission) -> None:
    s.good()
    s.nb["cells"].remove(s.cell("apply_rotary_emb"))


@entry("mess", {ROT: 6.0})
def everything_but_one_answer_deleted(s: Submission) -> None:
    s.answer("apply_rotary_emb", RIGHT_ROT)
    s.nb["cells"] = [s.cell("apply_rotary_emb")]


@entry("mess", ungradable="none of the exercises of week3_rope is in it; submit")
def no_cells(s: Submission) -> None:
    s.nb["cells"] = []


@entry("mess", {FREQ: 2.0})
def answer_of_half_a_megabyte(s: Submission) -> None:
    s.good()
    s.answer("apply_rotary_emb", "x = [" + "1, " * 180_000 + "]\n" + RIGHT_ROT)


@entry("mess", {FREQ: 2.0})
def source_that_no_parser_likes(s: Submission) -> None:
    s.good()
    s.answer("apply_rotary_emb", RIGHT_ROT + "\nx = " + "(" * 3000 + "1" + ")" * 3000)
    s.add("y = " + "-" * 100_000 + "1")
    s.add("z = a" + ".b" * 8_000)  # highlighting time grows with the square of this
    s.add("null = '\x00'\n")


@entry("mess", GOOD, student="O'Brien; DROP TABLE grade --")
def name_with_quotes(s: Submission) -> None:
    s.good()


@entry("mess", GOOD, student="José Ünal 名前 🎓")
def name_in_many_scripts(s: Submission) -> None:
    s.good()


@entry("mess", GOOD, student=f"<img src=x onerror={SCRIPT}()>")
def name_with_html(s: Submission) -> None:
    s.good()


@entry("mess", GOOD, student="$(touch pwned) %s {0} [a-z]")
def name_with_patterns(s: Submission) -> None:
    s.good()


@entry("mess", ungradable="not a notebook", student="-rf --force")
def name_like_options(s: Submission) -> None:
    s.write(data="x")


@entry("mess", GOOD)
def read_only_folder(s: Submission) -> None:
    s.good()
    s.write().chmod(0o444)
    s.folder.chmod(0o555)


@entry("mess", GOOD)
def checkpoints_inside(s: Submission) -> None:
    s.good()
    s.write()
    (s.folder / ".ipynb_checkpoints").mkdir()
    shutil.copy(s.folder / f"{WEEK}.ipynb", s.folder / ".ipynb_checkpoints" / f"{WEEK}-checkpoint.ipynb")


def stamped(name: str, data: bytes) -> None:
    def make(s: Submission) -> None:
        s.good()
        (s.folder / "timestamp.txt").write_bytes(data)

    make.__name__ = name
    entry("mess", GOOD)(make)


stamped("timestamp_fine", b"2026-01-05 10:00:00.000000 UTC")
stamped("timestamp_empty", b"")
stamped("timestamp_garbage", b"yesterday, I think")
stamped("timestamp_binary", b"\xff\xfe\x00" * 20)
stamped("timestamp_of_100_kb", b"9" * 100_000)


@entry("mess", GOOD)
def timestamp_is_a_directory(s: Submission) -> None:
    s.good()
    (s.folder / "timestamp.txt").mkdir()


@entry("mess", GOOD)
def timestamp_is_a_link(s: Submission) -> None:
    s.good()
    os.symlink("/dev/zero", s.folder / "timestamp.txt")


@entry("mess", ungradable="none of the exercises of week3_rope is in it")
def the_notebook_of_another_week(s: Submission) -> None:
    s.write(data=(COURSE / "notebooks" / "week2_sinusoidal" / "week2_sinusoidal.ipynb").read_text(encoding="utf-8"))


@entry("mess", GOOD, by_hand=("relative_proof",))
def the_proof_in_a_new_cell(s: Submission) -> None:
    s.good()
    s.add("Since the rotations are orthogonal …", after="relative_proof", cell_type="markdown")


@entry("mess", GOOD)
def float64_by_default(s: Submission) -> None:
    s.good()
    s.add("torch.set_default_dtype(torch.float64)")


def above_the_answer(name: str, line: str, due: dict[str, float] = GOOD) -> None:
    """Add an entry: right answers, one of them below a line that works in Jupyter."""

    def make(s: Submission) -> None:
        s.good()
        s.answer("apply_rotary_emb", f"{line}\n{RIGHT_ROT}")

    make.__name__ = name
    entry("mess", due)(make)


above_the_answer("compiled", "@torch.compile")
above_the_answer("figures_that_can_be_moved", "%matplotlib widget")
above_the_answer("figures_in_a_window", "import matplotlib; matplotlib.use('TkAgg')")
above_the_answer("packages_installed", "%conda install -y einops\n%pip install einops")
above_the_answer("output_of_a_program", "import subprocess, sys; subprocess.run(['echo', 'hi'], stdout=sys.stdout, check=True)")


@entry("mess", {FREQ: 2.0})
def debugger_left_in(s: Submission) -> None:
    s.good()
    s.answer("apply_rotary_emb", RIGHT_ROT.replace("    w = base", "    import pdb; pdb.set_trace()\n    w = base"))
