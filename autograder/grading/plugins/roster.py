"""A roster as spreadsheets write it: with a byte order mark, as UTF-16, with semicolons or tabs between its columns."""

import codecs
import csv
import io
from pathlib import Path


def open_csv(path: str | Path, mode: str = "r") -> io.StringIO:
    """The file's text with commas, in place of ``open``. What is not Unicode ends the command: a guess would change names."""
    raw = Path(path).read_bytes()
    is_utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = raw.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise SystemExit(
            f'error: {path} is not UTF-8 (line {line}): save it from the spreadsheet as "CSV UTF-8", then run the same '
            "command again"
        ) from None
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=text.partition("\n")[0].count))
    made = io.StringIO(newline="")
    csv.writer(made).writerows(rows)
    made.seek(0)
    return made


def read_roster(path: str | Path) -> list[dict[str, str]]:
    """A dictionary for each student, by the names of the columns."""
    return list(csv.DictReader(open_csv(path)))
