"""Files as they really arrive: broken, renamed, re-encoded, deformed. Unreadable ones are ungradable with a reason."""

import copy
import json
import os

from hostile.bank import (
    FREQ,
    GOOD,
    RIGHT_ROT,
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
broken("deep_json", "not a notebook", b'{"cells": ' + b"[" * 200_000 + b"]" * 200_000 + b"}")
broken("latin_1", "not a notebook", '{"cells": [], "x": "é"}'.encode("latin-1"))
broken("zip_instead", "not a notebook", b"PK\x03\x04" + bytes(200))


@entry("mess", ungradable="not a notebook")
def truncated(s: Submission) -> None:
    s.good()
    text = json.dumps(s.nb)
    s.write(data=text[: len(text) * 2 // 3])


@entry("mess", ungradable="not a notebook")
def merge_conflict(s: Submission) -> None:
    s.write(data="<<<<<<< HEAD\n" + json.dumps(s.nb) + "\n=======\n>>>>>>> theirs\n")


@entry("mess", ungradable="not a regular file")
def fifo_instead_of_the_file(s: Submission) -> None:
    os.mkfifo(s.folder / f"{WEEK}.ipynb")
    s.written = True


@entry("mess", ungradable="link")
def symlink_to_the_source(s: Submission) -> None:
    os.symlink(s.root / "source" / WEEK / f"{WEEK}.ipynb", s.folder / f"{WEEK}.ipynb")
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


@entry("mess", ungradable="several notebooks hold answers")
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
def saved_text_that_cannot_be_encoded(s: Submission) -> None:
    """Lone surrogates: valid JSON, but no UTF-8."""
    s.good()
    s.tagged("experiment")["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["\ud800 \x00 \udfff"]}]
    s.add("text \ud800 \udfff", cell_type="markdown")
    s.add("x = '\ud800'")


@entry("mess", GOOD)
def sixty_megabytes_of_output(s: Submission) -> None:
    s.good()
    s.cell("rope_frequencies_check")["outputs"] = [
        {"output_type": "stream", "name": "stdout", "text": ["x" * 99 + "\n"] * 300_000},
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * 30_000_000}}]


@entry("mess", {FREQ: 2.0})
def copied_with_its_grade_id(s: Submission) -> None:
    """The right answer, and below it a copy of the cell with a wrong one: the last counts, and the student is told."""
    s.good()
    twin = copy.deepcopy(s.cell("apply_rotary_emb"))
    twin |= {"source": WRONG_ROT, "id": "twin"}
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


@entry("mess", GOOD)
def source_that_no_parser_likes(s: Submission) -> None:
    s.good()
    s.answer("apply_rotary_emb", RIGHT_ROT + "\nx = " + "(" * 3000 + "1" + ")" * 3000)
    s.add("y = " + "-" * 100_000 + "1")
    s.add("z = a" + ".b" * 8_000)  # highlighting time grows with the square of this
    s.add("null = '\x00'\n")


@entry("mess", GOOD, student=f"<img src=x onerror={SCRIPT}()>")
def name_with_html(s: Submission) -> None:
    s.good()


@entry("mess", ungradable="not a notebook", student="-rf --force")
def name_like_options(s: Submission) -> None:
    s.write(data="x")


@entry("mess", GOOD)
def read_only_folder(s: Submission) -> None:
    s.good()
    s.write().chmod(0o444)
    s.folder.chmod(0o555)
