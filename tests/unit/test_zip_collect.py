"""Which uploads count as new submissions; tests/course/test_uploads.py collects them."""

from pathlib import Path

import pytest

from autograder.grading.plugins.zip_collect import _is_new


@pytest.mark.parametrize(
    ("before", "is_new"),
    [({"a": "1", "b": "2"}, False), ({"a": "0", "b": "2"}, True), ({"b": "2"}, True), ({}, True)],
    ids=["the same", "one of two differs", "one is more", "all are"],
)
def test_one_file_that_differs_makes_an_upload_new(before: dict[str, str], is_new: bool, tmp_path: Path) -> None:
    for folder, files in (("uploaded", {"a": "1", "b": "2"}), ("submitted", before)):
        (tmp_path / folder).mkdir()
        for name, content in files.items():
            (tmp_path / folder / name).write_text(content)
    uploaded, submitted = ([str(tmp_path / folder / name) for name in "ab"] for folder in ("uploaded", "submitted"))
    assert _is_new({"src_files": uploaded, "dest_files": submitted}) is is_new
