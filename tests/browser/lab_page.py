"""JupyterLab as a person uses it: click cells, type into them, run them with Shift+Enter."""

import re

from playwright.sync_api import Locator, Page, expect

RAN = re.compile(r"\[\d+\]")
KERNEL_SECONDS = 900


class LabPage:
    """One notebook, opened in JupyterLab."""

    def __init__(self, page: Page, url: str, path: str) -> None:
        self.page = page
        page.goto(f"{url}/lab/tree/{path}?reset")
        self.notebook = page.locator(".jp-NotebookPanel .jp-Notebook")
        expect(self.notebook.locator(".jp-Cell").first).to_be_visible(timeout=KERNEL_SECONDS * 1000)
        expect(page.locator(".jp-NotebookPanel-toolbar .jp-KernelName")).to_have_text(re.compile("Python 3"))

    def choose_theme(self, name: str) -> None:
        """Choose a theme in the menu, as a person does."""
        item = self.page.locator(".lm-Menu .lm-Menu-itemLabel")
        self.page.get_by_role("menuitem", name="Settings").click()
        item.get_by_text("Theme", exact=True).hover()
        item.get_by_text(name, exact=True).click()
        expect(self.page.locator(f"body[data-jp-theme-name='{name}']")).to_be_attached()

    def code_cell(self, text: str) -> Locator:
        """Return the only code cell whose input contains this text."""
        found = self.notebook.locator(".jp-CodeCell").filter(has=self.page.locator(".jp-InputArea", has_text=text))
        expect(found).to_have_count(1)
        return found

    def check_below(self, answer: Locator) -> Locator:
        """Return the visible check of this answer, unfolded."""
        check = answer.locator("xpath=following-sibling::div[contains(@class, 'jp-CodeCell')][1]")
        if (fold := check.locator(".jp-InputPlaceholder")).count():
            fold.click()
        return check

    def run(self, cell: Locator) -> Locator:
        """Run a cell with Shift+Enter and return its outputs."""
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.inner_text()
        self._edit(cell)
        self.page.keyboard.press("Shift+Enter")
        expect(prompt).not_to_have_text(before)
        expect(prompt).to_have_text(RAN, timeout=KERNEL_SECONDS * 1000)
        return cell.locator(".jp-OutputArea")

    def answer(self, cell: Locator, code: str) -> None:
        """Replace the whole cell by ``code``, as if pasted."""
        self._edit(cell)
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(code)

    def _edit(self, cell: Locator) -> None:
        editor = cell.locator(".cm-content").first
        editor.scroll_into_view_if_needed()
        editor.click()
        expect(cell).to_have_class(re.compile(r"\bjp-mod-active\b"))
