"""Imports the course's helper modules once, in the fork server, so that forks need not compile and run them."""

import importlib
import os
import sys
import tempfile
from collections.abc import Mapping
from types import ModuleType

_known: dict[str, tuple[str, ModuleType]] = {}  # by file name: its text and its module


def import_helpers(files: Mapping[str, str]) -> None:
    """Import these files of the course, in the server. If one cannot be imported, all are left to the notebooks. So are
    files that mention CUDA: once a process has looked at it, none of its forks can use it."""
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
            for name in files:  # even those that only another one of them has imported
                sys.modules.pop(_module(name), None)
        finally:
            sys.path.remove(folder)
            importlib.invalidate_caches()


def offer_helpers(files: Mapping[str, str], folder: str) -> None:
    """In a fork, keep the imported modules if the submission's files are the same, and set their paths to ``folder``. A
    submission's file comes before a module of this program with the same name."""
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
