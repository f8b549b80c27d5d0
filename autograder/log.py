"""nbgrader's log, captured instead of printed."""

import logging


class CapturedLog(logging.Logger):
    """Collects a converter's messages with their levels; assign it to `converter.log`."""

    def __init__(self) -> None:
        super().__init__("nbgrader", logging.ERROR)
        self.said: list[tuple[int, str]] = []

    def handle(self, record: logging.LogRecord) -> None:
        self.said.append((record.levelno, record.getMessage()))

    @property
    def traceback(self) -> str:
        """The first traceback, which ends with the error; empty if there is none."""
        return next((text.strip() for _, text in self.said if "Traceback" in text), "")
