"""`nbgrader zip_collect`: a problem with one student's upload stops nobody else's, and is reported at the end."""

import os
import shutil
from pathlib import Path
from typing import Any

import nbgrader.plugins.zipcollect
import nbgrader.utils
from nbgrader.apps.zipcollectapp import ZipCollectApp

from autograder.grading.plugins.timestamps import parsed

_stock_start = ZipCollectApp.start
_stock_unzip = nbgrader.utils.unzip
Collected = dict[str, dict[str, Any]]


class CourseZipCollect(ZipCollectApp):
    """nbgrader's ZipCollectApp, but it goes on with the rest of the class if two files could be a student's notebook,
    an archive is damaged, or somebody has a submission already."""

    def start(self) -> None:
        self._told: list[str] = []
        try:
            _stock_start(self)
        finally:
            for line in self._told:
                self.log.warning("%s", line)

    def extract_archive_files(self) -> None:
        archive, extracted = (
            Path(self._format_collect_path(step)) for step in (self.archive_directory, self.extracted_directory)
        )
        if archive.is_dir() and any(archive.iterdir()):
            shutil.rmtree(extracted, ignore_errors=True)  # from an earlier download; all is unpacked again

        def unzip(source: str, *arguments: Any, **options: Any) -> None:
            try:
                _stock_unzip(source, *arguments, **options)
            except Exception as error:  # from zipfile, tarfile, zlib or setuptools
                if not _is_leftover(self._shown(source)):
                    then = "download it" if Path(source).parent == archive else "have it handed in"
                    self._told.append(f"{self._shown(source)} cannot be unpacked ({error}): {then} again")

        nbgrader.utils.unzip = nbgrader.plugins.zipcollect.unzip = unzip  # in this process, which ends with the command
        super().extract_archive_files()

    def _collect_files(self, src_files: list[str]) -> Collected:
        files = [file for file in src_files if not _is_leftover(self._shown(file))]
        found = {file: self.collector_plugin_inst.collect(file) for file in files}
        archives = tuple(self.extractor_plugin_inst.zip_ext)  # their contents lie beside them now
        answers = {file: answer for file, answer in found.items() if answer or not file.endswith(archives)}
        for file, answer in answers.items():
            if answer and isinstance(text := answer.get("timestamp"), str):
                answers[file] = answer | {"timestamp": parsed(text)}
                if text and not answers[file]["timestamp"]:
                    self._told.append(
                        f"{self._shown(file)}: {text!r} is no time that can be read, so its time is not known"
                    )
            elif not answer:
                self._told.append(f"not collected: {self._shown(file)}")
        for (student, name), claims in _claims(answers).items():
            if len(claims) > 1:
                self._choose(student, name, claims, answers)
        self.collector_plugin_inst.collect = answers.__getitem__
        collected: Collected = super()._collect_files(list(answers))
        return collected

    def _choose(self, student: str, name: str, claims: list[str], answers: dict[str, Any]) -> None:
        """Choose among several files that would become one notebook: nbgrader takes the newest; without times, the only
        one of that name counts. The others keep names of their own, and grading reports them instead of guessing."""
        if all(answers[file].get("timestamp") for file in claims):
            self._told.append(f"{student} has handed in {len(claims)} notebooks: the newest counts")
            return
        by_content: dict[bytes, str] = {}
        for file in sorted(claims, key=lambda file: Path(file).name != name):
            if by_content.setdefault(Path(file).read_bytes(), file) != file:
                del answers[file]
        different = list(by_content.values())
        named = [file for file in different if Path(file).name == name]
        counts = different[0] if len(different) == 1 else named[0] if len(named) == 1 else ""
        taken = {name}
        for file in different:
            if file != counts:
                own = _free_name(Path(file), taken)
                taken.add(own)
                answers[file] = answers[file] | {"file_id": own}
        found = ", ".join(map(self._shown, claims))
        then = (
            f"{Path(counts).name} counts"
            if counts
            else "grading takes the one that holds answers, or none if several do"
        )
        self._told.append(f"{student} has handed in {len(claims)} notebooks ({found}): {then}")

    def _transfer_files(self, collected_data: Collected) -> None:
        free = {}
        for student, data in collected_data.items():
            folder = Path(
                self.coursedir.format_path(self.coursedir.submitted_directory, student, self.coursedir.assignment_id)
            )
            if not folder.is_dir() or not any(folder.iterdir()):
                free[student] = data
            elif not _is_new(data):
                continue  # the same files, which keep their time
            elif not self.force:
                self._told.append(f"{student} has a submission already, which stays as it is: --force replaces it")
            else:
                if (folder / "timestamp.txt").is_file() and data["timestamp"] is None:
                    self._told.append(f"{student} has a new submission without a time: the old timestamp.txt is gone")
                free[student] = data
        super()._transfer_files(free)

    def _shown(self, file: str) -> str:
        return os.path.relpath(file, self.coursedir.root)


def zip_collect(app: ZipCollectApp) -> None:
    """Replace nbgrader's `ZipCollectApp.start`: `CourseZipCollect` does the same task."""
    app.__class__ = CourseZipCollect
    app.start()


def _is_leftover(path: str) -> bool:
    """Whether a file comes from a system or an editor, never a student: what a Mac puts into a zip, checkpoints."""
    return any(part == "__MACOSX" or (part.startswith(".") and part != "..") for part in Path(path).parts)


def _is_new(data: dict[str, Any]) -> bool:
    """Whether one of these files differs from what was collected before."""
    return any(
        not Path(new).is_file() or Path(file).read_bytes() != Path(new).read_bytes()
        for file, new in zip(data["src_files"], data["dest_files"], strict=True)
    )


def _claims(answers: dict[str, Any]) -> dict[tuple[str, str], list[str]]:
    """Group files by the student and the name that the plug-in has given them."""
    found: dict[tuple[str, str], list[str]] = {}
    for file, answer in answers.items():
        if answer and isinstance(answer.get("file_id"), str):  # if not, nbgrader reports what the plug-in should return
            name = os.path.splitext(answer["file_id"])[0] + Path(file).suffix
            found.setdefault((answer.get("student_id"), name), []).append(file)
    return found


def _free_name(file: Path, taken: set[str]) -> str:
    name, number = file.name, 1
    while name in taken:
        number += 1
        name = f"{file.stem}-{number}{file.suffix}"
    return name
