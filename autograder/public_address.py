"""The course's public address: `[tool.course]` in pyproject.toml, and the links made from it."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from autograder.errors import CourseError

GITHUB = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+")
ADDRESS = re.compile(r"https?://[\w.-]+(?::\d+)?(?:/[\w.~-]+)*")


@dataclass(frozen=True)
class PublicAddress:
    """The repository's page and the branch that readers see; false if no address is filled in."""

    address: str = ""
    branch: str = "main"

    def __bool__(self) -> bool:
        return bool(self.address)

    @property
    def is_on_github(self) -> bool:
        return GITHUB.fullmatch(self.address) is not None

    def page(self, path: str) -> str:
        """The page that shows a file of the repository; empty without an address."""
        return f"{self.address}/blob/{self.branch}/{path}" if self.address else ""

    def raw(self, path: str) -> str:
        """The address of a file's bytes; empty for a host other than GitHub, since its form is not known."""
        if not self.is_on_github:
            return ""
        return f"{self.address.replace('//github.com', '//raw.githubusercontent.com')}/{self.branch}/{path}"

    def colab(self, path: str) -> str:
        """The link that opens a notebook in Colab; empty outside GitHub, which is all that Colab reads."""
        if not self.is_on_github:
            return ""
        return self.page(path).replace("https://github.com/", "https://colab.research.google.com/github/")


def public_address(root: Path) -> PublicAddress:
    """The setting of the course in ``root``. Raises ``CourseError`` for an invalid address or branch."""
    file = root / "pyproject.toml"
    setting = (
        tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("course", {}) if file.is_file() else {}
    )
    address, branch = str(setting.get("public_address", "")).rstrip("/"), str(setting.get("public_branch", "main"))
    address = address.removesuffix(".git")
    if address and not ADDRESS.fullmatch(address):
        raise CourseError(
            f"public_address in pyproject.toml is {address!r}; it can be empty or like https://github.com/OWNER/REPOSITORY"
        )
    if not re.fullmatch(r"[\w./-]+", branch):
        raise CourseError(f"public_branch in pyproject.toml is {branch!r}, which is no name of a branch")
    return PublicAddress(address, branch)
