"""The course's helper modules, imported once in the fork server: each fork would compile and run them anew."""

import importlib
import os
import sys
import tempfile
from collections.abc import Mapping
from types import ModuleType

_known: dict[str, tuple[str, ModuleType]] = {}  # by file name: the text, and what it gave


def import_helpers(files: Mapping[str, str]) -> None:
    """Import these files of the course, in the server. If one cannot be imported they are left to the notebooks; so is
    what speaks of CUDA: once a process has looked at that, none of its forks can use it."""
    forget_helpers()
    files = {name: text for name, text in files.items() if "cuda" not in text}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        sys.path.insert(0, folder)
        try:
            _known.update({name: (text, importlib.import_module(_module(name))) for name, text in files.items()})
        except Exception:
            for name in files:  # what they have imported of each other, too
                sys.modules.pop(_module(name), None)
        finally:
            sys.path.remove(folder)
            importlib.invalidate_caches()


def offer_helpers(files: Mapping[str, str], folder: str) -> None:
    """In a fork: keep what is imported already if the submission's files are these, and tell it where they lie. A file that
    is called like a part of this program comes before it."""
    here = os.path.dirname(os.path.abspath(__file__))
    for name in map(_module, files):
        if name in sys.modules and os.path.dirname(getattr(sys.modules[name], "__file__", None) or "") == here:
            del sys.modules[name]
    if any(files.get(name) != text for name, (text, _) in _known.items()):
        forget_helpers()
    for name, (_, module) in _known.items():
        module.__file__ = os.path.join(folder, name)


def forget_helpers() -> None:
    for name in _known:
        sys.modules.pop(_module(name), None)
    _known.clear()


def _module(file_name: str) -> str:
    return file_name.removesuffix(".py")
