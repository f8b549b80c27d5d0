"""A file that forked processes write to and read, in a module of its own: whoever opens it has not imported torch yet."""

import fcntl
import os
import tempfile


class SharedFile:
    """Opened before the processes are forked, closed when they have ended."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  it has no name: even a kill leaves none behind
        self._number = self._file.fileno()
        fcntl.fcntl(self._number, fcntl.F_SETFL, fcntl.fcntl(self._number, fcntl.F_GETFL) | os.O_APPEND)

    def append(self, record: bytes) -> None:
        """In one piece, whoever else does. Raises ``OSError`` where there is no room."""
        if os.write(self._number, record) != len(record):
            raise OSError("only a part was written")

    def read(self, size: int, offset: int) -> bytes:
        return os.pread(self._number, size, offset)

    def close(self) -> None:
        self._file.close()
