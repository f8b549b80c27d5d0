"""`make quiz`: the text's questions and answers, in the formats that four systems import.

No package ships the schemas. So `CONTENT` has the content models of ims_qtiasiv1p2p1.dtd for the elements that are used, and
`MOODLE` the elements that Moodle's page on its format names for an essay, in any order.
"""

import re
import zipfile
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from course.weeks import WEEKS, by_week
from helpers import copy_of_course

from autograder.build.release import NAME, release
from autograder.errors import TextError
from autograder.quiz import FORMATS, as_html, between_brackets, equation_image, read_quiz, write_quiz

QTI = "{http://www.imsglobal.org/xsd/ims_qtiasiv1p2}"
# Children in their order, each followed by a blank: elements of the DTD that are never written are left out.
CONTENT = {
    "questestinterop": "assessment ",
    "assessment": "(qtimetadata )*(section )+",
    "section": "(item )+",
    "item": "(itemmetadata )?(presentation )?(resprocessing )*(itemfeedback )*",
    "itemmetadata": "(qtimetadata )*",
    "qtimetadata": "(qtimetadatafield )+",
    "qtimetadatafield": "fieldlabel fieldentry ",
    "presentation": "(material |response_str )+",
    "material": "(mattext )+",
    "response_str": "(material )?render_fib ",
    "render_fib": "(material |response_label )*",
    "response_label": "(material )*",
    "resprocessing": "outcomes (respcondition )+",
    "outcomes": "(decvar )+",
    "respcondition": "conditionvar (setvar )*(displayfeedback )*",
    "conditionvar": "(other )+",
    "itemfeedback": "(flow_mat |material )+",
    "flow_mat": "(flow_mat |material )+",
} | dict.fromkeys(["fieldlabel", "fieldentry", "mattext", "decvar", "other", "displayfeedback"], "")
IDENTIFIED = ["assessment", "section", "item", "response_str", "response_label", "itemfeedback"]
REQUIRED = {name: {"ident"} for name in IDENTIFIED} | {"displayfeedback": {"linkrefid"}}
OF_ANY_QUESTION = {"name", "questiontext", "generalfeedback", "defaultgrade", "penalty", "hidden"}
MOODLE = OF_ANY_QUESTION | {
    "responseformat",
    "responserequired",
    "responsefieldlines",
    "attachments",
    "attachmentsrequired",
    "graderinfo",
    "responsetemplate",
}

quiz_of = cache(read_quiz)


def asked_in(text: Path) -> list[tuple[str, str]]:
    """Return a text's questions and answers, read line by line, unlike the module does."""
    found: list[tuple[str, str]] = []
    lines = [line.removeprefix("#").strip() for line in text.read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines):
        if re.match(r"<details><summary>\d", line):
            end = lines.index("</details>", number)
            question = line.partition(". ")[2].removesuffix("</summary>")
            found.append((question, " ".join(filter(None, lines[number + 1 : end]))))
    return found


def words(html: str) -> list[str]:
    """Return the words of HTML or Markdown, without formulas and markup."""
    without = re.sub(r'<img class="equation_image"[^>]*>|\\\(.*?\\\)|\\\[.*?\\\]|\$[^$]*\$', " ", html, flags=re.DOTALL)
    return re.findall(r"\w+", unescape(re.sub(r"</?(p|em|strong|code|a|ul|ol|li)\b[^>]*>", " ", without)))


def formulas(html: str) -> list[str]:
    found = re.findall(r'data-equation-content="([^"]*)"|\\\((.*?)\\\)|\\\[(.*?)\\\]', html, flags=re.DOTALL)
    return [unescape("".join(one)) for one in found]


def files_of(text: Path, system: str) -> dict[str, bytes]:
    return FORMATS[system](quiz_of(text))[1]


def read_back(system: str, files: dict[str, bytes]) -> list[tuple[str, str]]:
    """Return the questions and answers of a week's file, as an importer finds them."""
    if system == "moodle":
        essays = [one for one in ElementTree.fromstring(files["quiz.xml"]) if one.get("type") == "essay"]
        found = [(one.findtext("questiontext/text"), one.findtext("generalfeedback/text")) for one in essays]
    elif system == "blackboard":
        rows = [line.split("\t") for line in files["quiz.txt"].decode().splitlines()]
        assert {(kind, len(rest)) for kind, *rest in rows} == {("ESS", 2)}
        found = [(question, answer) for _, question, answer in rows]
    else:
        found = [
            (item.findtext(f"{QTI}presentation//{QTI}mattext"), item.findtext(f"{QTI}itemfeedback//{QTI}mattext"))
            for item in qti_of(files).iter(f"{QTI}item")
        ]
    return [(str(question), str(answer)) for question, answer in found]


def qti_of(files: dict[str, bytes]) -> ElementTree.Element:
    """Return the questions of a package, found through its manifest."""
    manifest = ElementTree.fromstring(files["imsmanifest.xml"])
    (resource,) = manifest.iter("{http://www.imsglobal.org/xsd/imscp_v1p1}resource")
    (file,) = resource
    assert resource.get("type") == "imsqti_xmlv1p2"
    assert resource.get("href") == file.get("href")
    assert {*files} == {"imsmanifest.xml", file.get("href")}
    return ElementTree.fromstring(files[str(file.get("href"))])


@by_week
@pytest.mark.parametrize("system", FORMATS)
def test_questions_and_answers_are_the_texts(text: Path, system: str) -> None:
    found, due = read_back(system, files_of(text, system)), asked_in(text)
    assert len(due) >= 6
    assert [unescape(re.sub(r"</?p>", "", question)) for question, _ in found] == [unescape(one) for one, _ in due]
    assert [words(answer) for _, answer in found] == [words(answer) for _, answer in due]
    assert [formulas(answer) for _, answer in found] == [re.findall(r"\$+([^$]+)\$+", answer) for _, answer in due]


@by_week
@pytest.mark.parametrize("system", ["canvas", "brightspace"])
def test_packages_have_the_structure_of_qti(text: Path, system: str) -> None:
    identifiers = []
    for element in qti_of(files_of(text, system)).iter():
        name, children = element.tag.removeprefix(QTI), "".join(f"{one.tag.removeprefix(QTI)} " for one in element)
        assert re.fullmatch(CONTENT[name], children), f"{name}: {children}"
        assert REQUIRED.get(name, set()) <= set(element.attrib), name
        identifiers += [element.attrib["ident"]] if name == "item" else []
        if name == "item":
            shown = element.find(f"{QTI}resprocessing/{QTI}respcondition/{QTI}displayfeedback")
            feedback = element.find(f"{QTI}itemfeedback")
            assert shown is not None and feedback is not None and shown.get("linkrefid") == feedback.get("ident")
    assert len(set(identifiers)) == len(identifiers)


@by_week
def test_moodles_file_has_what_an_essay_needs(text: Path) -> None:
    content = files_of(text, "moodle")["quiz.xml"]
    category, *essays = ElementTree.fromstring(content)
    assert content.startswith(b"<?xml")  # Moodle's page: nothing may come before it
    assert category.get("type") == "category" and category.findtext("category/text") == f"$course$/top/{text.stem}"
    assert len({one.findtext("name/text") for one in essays}) == len(essays) > 0
    for one in essays:
        assert one.get("type") == "essay" and {child.tag for child in one} == MOODLE
        assert all(
            child.get("format") == "html" for child in one if child.find("text") is not None and child.tag != "name"
        )


def test_a_formula_in_the_form_of_each_system() -> None:
    assert as_html("a $x<\\sqrt{2}$ b", between_brackets) == r"<p>a \(x&lt;\sqrt{2}\) b</p>"
    assert r"\[x^2\]" in as_html("$$x^2$$", between_brackets)
    image = as_html("$x/y<\\sqrt{2}$", equation_image)
    assert r'data-equation-content="x/y&lt;\sqrt{2}"' in image
    (source,) = re.findall(r'src="/equation_images/([^"]+)"', image)
    assert "/" not in source and unquote(source) == r"x/y<\sqrt{2}"


def test_a_package_is_written_under_release_with_the_same_bytes_twice(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / WEEKS[0].name).write_bytes(WEEKS[0].read_bytes())
    path, count = write_quiz(tmp_path, "1", "canvas")
    first = path.read_bytes()
    with zipfile.ZipFile(path) as package:
        assert {name: package.read(name) for name in package.namelist()} == files_of(WEEKS[0], "canvas")
    assert path == tmp_path / "release" / f"quiz-{WEEKS[0].stem}-canvas.zip"
    assert count == len(quiz_of(WEEKS[0]).questions)
    assert write_quiz(tmp_path, "1", "canvas")[0].read_bytes() == first


@pytest.mark.parametrize("numbers", [[], [1, 3], [2], [1, 1]])
def test_questions_that_do_not_count_from_one_are_refused(numbers: list[int], tmp_path: Path) -> None:
    page = "".join(f"# <details><summary>{one}. Why?</summary>\n#\n# So.\n# </details>\n#\n" for one in numbers)
    text = tmp_path / "week9_x.py"
    text.write_text(f"# %% [markdown]\n# # Week 9\n{page}", encoding="utf-8")
    with pytest.raises(TextError, match=r"source/week9_x\.py: questions must be numbered 1, 2, 3"):
        read_quiz(text)


def test_a_formula_in_a_question_itself_is_refused(tmp_path: Path) -> None:
    text = "# %% [markdown]\n# # Week 9\n# <details><summary>1. $x$?</summary>\n#\n# So.\n# </details>\n"
    (tmp_path / "week9_x.py").write_text(text, encoding="utf-8")
    with pytest.raises(TextError, match=r"plain text, .*look at \[1\]"):
        read_quiz(tmp_path / "week9_x.py")


@pytest.mark.slow
def test_students_get_no_quiz_file(tmp_path: Path) -> None:
    """A release contains only the week's own files, whatever else is under release/."""
    copy_of_course(tmp_path)
    made = [write_quiz(tmp_path, "1", system)[0] for system in FORMATS]
    released = {path.name for path in release(tmp_path, "1")[0].rglob("*")}
    with zipfile.ZipFile(tmp_path / "release" / f"{NAME}.zip") as archive:
        released |= {Path(name).name for name in archive.namelist()}
    assert not released & {path.name for path in made}
    assert not [name for name in released if "quiz" in name]
    assert all(path.is_file() for path in made)
