"""`make site`: writes the pages as Markdown, runs Sphinx, checks every link. Building twice gives the same bytes."""

import os
import shutil
from pathlib import Path

from autograder.build.opening import costs
from autograder.build.pipeline import texts
from autograder.course import week_number
from autograder.errors import CourseError
from autograder.manifest import MANIFEST
from autograder.pages import filled
from autograder.public_address import PublicAddress, public_address
from autograder.site.check_links import check_links
from autograder.site.cross_references import CrossReferences
from autograder.site.formulas import write_font
from autograder.site.guides import guide_page, guides, slug
from autograder.site.kernels import Kernel, module_summary, read_kernels
from autograder.site.launch import start_box, write_download
from autograder.site.markdown import raw
from autograder.site.methods import METHODS, method_list, method_page
from autograder.site.pictures import Pictures
from autograder.site.week import Week, read_week
from autograder.site.week_page import week_page

HERE = Path(__file__).parent
EPOCH = "315532800"  # 1980, as in the zips: a date in the output would differ from day to day


def build_site(root: Path, target: Path) -> Path:
    """Build the site below ``target``; returns its folder. A warning of Sphinx or a broken link is an error."""
    text, site = target / "site-text", target / "site"
    for folder in (text, site):
        shutil.rmtree(folder, ignore_errors=True)
    write_pages(root, text)
    _run_sphinx(text, site)
    write_font((page.read_text(encoding="utf-8") for page in site.rglob("*.html")), site / "_static" / "math.woff")
    check_links(site)
    return site


def write_pages(root: Path, folder: Path) -> None:
    """Write all pages as Markdown, with their pictures and downloads."""
    address = public_address(root)
    weeks = {week.number: week for week in (read_week(root, text.stem) for text in texts(root))}
    kernels = read_kernels(root)
    references = CrossReferences(weeks)
    pictures = Pictures(folder / "extra" / "pictures", "../pictures")
    pages = {}
    for week in weeks.values():
        pages[f"weeks/{week.assignment}"] = week_page(week, references, pictures, start_box(week, address))
        write_download(root, week, folder / "extra" / "downloads")
    for method in METHODS:
        pages[f"methods/{method.slug}"] = method_page(method, weeks, kernels, references, pictures)
    for guide in guides(root):
        pages[f"guides/{slug(guide)}"] = guide_page(root, guide, address, pictures)
    pages["methods/index"] = filled("site_methods.md.j2", methods=METHODS, table=method_list())
    pages["reference"] = _reference_page(root, kernels)
    pages["index"] = _title_page(root, weeks, address, folder)
    for name, content in pages.items():
        path = folder / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def _title_page(root: Path, weeks: dict[str, Week], address: PublicAddress, folder: Path) -> str:
    clocks, _ = weeks["3"].picture("clocks")
    pictures = Pictures(folder / "extra" / "pictures", "pictures")
    return filled(
        "site_index.md.j2",
        clocks=raw(f'<div class="picture" data-turns>{pictures.stored(clocks)}</div>'),
        weeks=list(weeks.values()),
        costs=costs,
        guides=[*map(slug, guides(root))],
        address=address,
    )


def _reference_page(root: Path, kernels: dict[str, Kernel]) -> str:
    """The reference page: one section per module, in the order in which the weeks first ask for one of its kernels."""
    weeks = {entry.grade_id: week_number(assignment) for assignment, found in MANIFEST.items() for entry in found}
    modules: dict[str, list[Kernel]] = {}
    for kernel in kernels.values():
        modules.setdefault(kernel.module, []).append(kernel)
    sections = []
    for module, found in modules.items():
        asked = ", ".join(f"[week {week}](#week-{week})" for week in sorted({weeks[kernel.name] for kernel in found}))
        heading = f"## {module_summary(root, module).rstrip('.')}\n\nFrom {asked}."
        sections.append("\n\n".join([heading, *(kernel.directive() for kernel in found)]))
    return filled("site_reference.md.j2", sections=sections)


def _run_sphinx(text: Path, site: Path) -> None:
    os.environ["SOURCE_DATE_EPOCH"] = EPOCH
    from sphinx.cmd.build import build_main  # imported late: it reads the variable, and only this command needs Sphinx

    doctrees = text.with_name("site-doctrees")
    shutil.rmtree(doctrees, ignore_errors=True)
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-b", "html", "-d", str(doctrees), "-c", str(HERE)]
    if build_main([*options, "-D", f"html_extra_path={text / 'extra'}", str(text), str(site)]):
        raise CourseError("Sphinx found something to mend, said above")
    (site / ".buildinfo").unlink(missing_ok=True)  # a note for Sphinx, with a digest of this machine's settings
