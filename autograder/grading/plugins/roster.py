"""Read CSV as spreadsheets write it: with a byte order mark, as UTF-16, with semicolons or tabs between columns."""

import codecs
import csv
import io
import unicodedata
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from autograder.errors import CourseError

MORE_FIELDS = "more fields than columns; put a text with commas in quotation marks"


def open_csv(path: str | Path) -> io.StringIO:
    """Open a CSV file as text with commas, without blanks around a field and what spreadsheets leave below a table. A
    file that is not Unicode ends the command: a guess would change names."""
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
    csv.writer(made).writerows(_tidy(row) for row in rows)
    made.seek(0)
    return made


def _tidy(row: list[str]) -> list[str]:
    """The row with plain fields, as names are compared; an empty line, which readers skip, if all of them are empty."""
    plain = [unicodedata.normalize("NFC", field.strip()) for field in row]
    return plain if any(plain) else []


def open_roster(path: str | Path, mode: str = "r") -> io.StringIO:
    """Open a roster for nbgrader's import. A line without an id, or with another line's, ends the command."""
    file = open_csv(path)
    reader = csv.DictReader(file)
    if "id" not in (reader.fieldnames or ()):
        raise SystemExit(f"error: {path} has no column id: its first line must be id,first_name,last_name,email")
    ids: Counter[str] = Counter()
    for row in reader:
        if not row["id"] or "/" in row["id"]:
            raise SystemExit(
                f"error: {path}, line {reader.line_num}: {row['id']!r} cannot be an id, nor a folder's name"
            )
        if any(row.get(None) or ()):
            raise SystemExit(f"error: {path}, line {reader.line_num}: {MORE_FIELDS}")
        ids[row["id"]] += 1
    if twice := [name for name, count in ids.items() if count > 1]:
        raise SystemExit(f"error: {path} has several lines for {', '.join(twice)}: keep one, then run it again")
    file.seek(0)
    return file


def read_roster(path: str | Path) -> list[dict[str, str]]:
    """Return a dictionary for each student, keyed by the names of the columns."""
    return list(csv.DictReader(open_csv(path)))


def read_table(path: Path, columns: Collection[str]) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a hand-written table, each with its line. Raises ``CourseError`` if the columns do not fit."""
    try:
        reader = csv.DictReader(open_csv(path))
    except SystemExit as error:  # in a grading run it must not end the server
        raise CourseError(str(error).removeprefix("error: ")) from None
    reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
    if missing := [name for name in columns if name not in reader.fieldnames]:
        raise CourseError(f"{path.name} needs the columns {','.join(columns)} in its first line; missing: {missing[0]}")
    found = []
    for row in reader:
        if None in row:
            raise CourseError(f"{path.name}, line {reader.line_num}: {MORE_FIELDS}")
        found.append((reader.line_num, {name: (row[name] or "").strip() for name in columns}))
    return found
