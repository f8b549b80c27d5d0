"""nbgrader's log, kept from the screen."""

import logging


class CapturedLog(logging.Logger):
    """Keeps what a converter says, with its level; `converter.log` may be one."""

    def __init__(self, level: int = logging.ERROR) -> None:
        super().__init__("nbgrader", level)
        self.said: list[tuple[int, str]] = []

    def handle(self, record: logging.LogRecord) -> None:
        self.said.append((record.levelno, record.getMessage()))

    @property
    def traceback(self) -> str:
        """The first, which ends with the error; empty if there is none."""
        return next((text.strip() for _, text in self.said if "Traceback" in text), "")
