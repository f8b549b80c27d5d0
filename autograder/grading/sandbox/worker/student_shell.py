"""IPython without a terminal or a kernel; it keeps what a cell prints and shows as data."""

import base64
import builtins
import io
import sys
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Type
from traitlets.config import Config

MAX_TEXT, MAX_IMAGES, MAX_IMAGE = 50_000, 12, 2 * 2**20


class Recorder:
    """Keeps what a cell prints and shows, up to a limit: text, results and PNG figures."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []
        self.room, self.images = MAX_TEXT, MAX_IMAGES

    def write(self, name: str, text: str) -> None:
        text = text[: self.room]
        self.room -= len(text)
        if not text:
            return
        if self.outputs and self.outputs[-1].get("stream") == name:
            self.outputs[-1]["text"] += text
        else:
            self.outputs.append({"stream": name, "text": text})

    def show(self, data: dict[str, Any], is_result: bool) -> None:
        kept: dict[str, Any] = {}
        text = data.get("text/plain")
        if isinstance(text, str):
            kept["text"] = text[: self.room]
            self.room -= len(kept["text"])
        picture = data.get("image/png")
        image = base64.b64decode(picture) if isinstance(picture, str) else picture
        if isinstance(image, bytes) and len(image) <= MAX_IMAGE and self.images > 0:
            self.images -= 1
            kept["png"] = image
        if kept:
            self.outputs.append({"show": kept, "result": is_result})


class Stream(io.TextIOBase):
    """stdout or stderr of student code. As in Jupyter, programs that it starts can use the file descriptor."""

    encoding, errors = "utf-8", "replace"

    def __init__(self, name: str, recorder: Recorder) -> None:
        self.name, self.recorder = name, recorder

    def write(self, text: str) -> int:
        self.recorder.write(self.name, str(text))
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1 if self.name == "stdout" else 2


class Publisher(CapturingDisplayPublisher):
    recorder: Any = None

    def publish(self, data: dict[str, Any], metadata: Any = None, source: Any = None, **_: Any) -> None:
        if self.recorder is not None:
            self.recorder.show(data, is_result=False)

    def clear_output(self, wait: bool = False) -> None:
        pass


class ResultHook(DisplayHook):
    recorder: Any = None

    def __call__(self, result: Any = None) -> None:
        if result is None:
            return
        vars(builtins)["_"] = result
        shell: Any = self.shell
        data, _ = shell.display_formatter.format(result)
        self.recorder.show(data, is_result=True)


class Shell(InteractiveShell):
    """IPython without a terminal, a kernel, a history or printed tracebacks (errors are reported as data)."""

    displayhook_class = Type(ResultHook)
    display_pub_class = Type(Publisher)

    is_plain = False  # whether IPython would leave the next cell as it is, so that it need not look for magics

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        pass

    def showsyntaxerror(self, *args: Any, **kwargs: Any) -> None:
        pass

    def enable_gui(self, gui: str | None = None) -> None:
        pass

    def enable_matplotlib(self, gui: str | None = None) -> Any:
        """Draw figures as pictures, whichever backend a student has at home: there is no screen and nobody to click."""
        return super().enable_matplotlib("inline")  # type: ignore[no-untyped-call]

    def run_line_magic(self, magic_name: str, line: str, _stack_depth: int = 1) -> Any:
        """Run a magic. If it fails, print the error and go on: missing packages and extensions cannot be added here."""
        try:
            return super().run_line_magic(magic_name, line, _stack_depth + 1)
        except Exception as error:
            print(f"%{magic_name}: {error}", file=sys.stderr)
            return None

    def transform_cell(self, raw_cell: str) -> str:
        """Skip the search for magics in a cell of plain Python: it takes longer than most cells."""
        is_plain, self.is_plain = self.is_plain, False
        if is_plain:
            return raw_cell.rstrip("\n") + "\n"
        transformed: str = super().transform_cell(raw_cell)  # type: ignore[no-untyped-call]
        return transformed

    def should_run_async(self, raw_cell: str, **options: Any) -> bool:
        """Have IPython compile a cell to find out only if it contains ``await`` or ``async``."""
        return ("await" in raw_cell or "async" in raw_cell) and super().should_run_async(raw_cell, **options)


def no_keyboard(prompt: object = "") -> str:
    """Stand in for ``input``, which in Jupyter asks the person at the keyboard. Raises ``EOFError``."""
    raise EOFError(
        "input() waits for a keyboard, and nobody is at one while your notebook is graded: write the value into the code"
    )


def make_shell() -> Any:
    """Return the one shell of this process (IPython's own types say little about it)."""
    builtins.input = no_keyboard
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    shell: Any = Shell.instance(config=config)
    shell.enable_matplotlib("inline")
    return shell
