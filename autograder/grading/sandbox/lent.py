"""Memory that a fork and the trusted side both see. Tensors whose change in place is looked for lie in it, so that the
trusted side compares them itself: what the student's process says about them is one witness, not the only one."""

import fcntl
import os
import tempfile

SIZE = 64 * 2**20  # sparse: only what is lent takes memory
ALIGNMENT = 64


class LentMemory:
    """The memory of one fork. Nothing in it is used twice: a student's module may keep what it was given."""

    def __init__(self) -> None:
        self._file = _memory_file()
        self._used = 0

    def fileno(self) -> int:
        return self._file

    def lend(self, raw: bytes) -> int | None:
        """Where the other side finds a copy of these bytes; ``None`` if there is no room left."""
        offset = self._used
        if not raw or offset + len(raw) > SIZE:
            return None
        os.pwrite(self._file, raw, offset)
        self._used = -(-(offset + len(raw)) // ALIGNMENT) * ALIGNMENT
        return offset

    def now(self, offset: int, size: int) -> bytes:
        """What lies there now. It is read, not mapped: a file that was cut short is no signal to this process."""
        return os.pread(self._file, size, offset)

    def close(self) -> None:
        os.close(self._file)


def _memory_file() -> int:
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryFile() as file:
            os.ftruncate(file.fileno(), SIZE)
            return os.dup(file.fileno())
    file_number = os.memfd_create("lent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file_number, SIZE)
    fcntl.fcntl(file_number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return file_number
