"""Buttons that open a week's notebook: Binder, Colab, or a download, made from the course's public address."""

from pathlib import Path
from urllib.parse import quote

from autograder.build.release import student_files, write_zip
from autograder.manifest import RELEASED_FILES
from autograder.public_address import PublicAddress
from autograder.site.markdown import raw
from autograder.site.week import Week

READY = "ready_"  # prefix of the files that hold answers of earlier weeks


def binder(address: PublicAddress, path: str) -> str:
    """The link that opens a notebook in Binder; empty outside GitHub, since this form of link is only for GitHub."""
    if not address.is_on_github:
        return ""
    repository = address.address.removeprefix("https://github.com/")
    return f"https://mybinder.org/v2/gh/{repository}/{quote(address.branch, safe='')}?labpath={quote(path, safe='')}"


def start_box(week: Week, address: PublicAddress) -> str:
    """The buttons on a week's page that lead to its notebook."""
    notebook = f"notebooks/{week.assignment}/{week.assignment}.ipynb"
    ways = [("Open in Binder", binder(address, notebook)), ("Open in Colab", address.colab(notebook))]
    ways.append(("Download", f"../downloads/{week.assignment}.zip"))
    buttons = "".join(f'<a class="button" href="{target}">{name}</a>' for name, target in ways if target)
    note = f"<p>{_about_ready_files(week, address)}</p>" if _ready_files(week) else ""
    return raw(f'<div class="start" role="group" aria-label="Work on this week">{buttons}{note}</div>')


def write_download(root: Path, week: Week, folder: Path) -> None:
    """Write the student release of one week as a zip, without the files that hold answers of earlier weeks."""
    ready = _ready_files(week)
    files = {
        name: content
        for name, content in student_files(root, week.number).items()
        if name.rpartition("/")[2] not in ready
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_zip(folder / f"{week.assignment}.zip", week.assignment, files)


def _ready_files(week: Week) -> list[str]:
    return [name for name in RELEASED_FILES.get(week.assignment, ()) if name.startswith(READY)]


def _about_ready_files(week: Week, address: PublicAddress) -> str:
    names = " and ".join(f"<code>{name}</code>" for name in _ready_files(week))
    repository = (
        f'the <a href="{address.address}">repository</a>'
        if address
        else "the repository (ask whoever gave you this page where that is)"
    )
    return (
        f"The notebook imports {names}, ready answers of earlier weeks, and does not run without. To spoil nothing, the "
        "download leaves that out. In a class, your teacher has it. On your own, solve the earlier weeks first, then copy "
        f"it from <code>notebooks/{week.assignment}/</code> of {repository} and put it beside the notebook. To read the "
        "week, with its results, you need nothing but this page."
    )
