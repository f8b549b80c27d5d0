"""Memory that a fork and the trusted side share. It holds the tensors that a test checks for in-place changes, so that
the trusted side can compare them itself and need not rely on the student's process alone."""

import fcntl
import os
import tempfile

SIZE = 64 * 2**20  # sparse: only what is lent takes memory
ALIGNMENT = 64


class LentMemory:
    """The memory of one fork. No part of it is reused, because a student's module may keep a tensor it was given."""

    def __init__(self) -> None:
        self._file = _memory_file()
        self._used = 0

    def fileno(self) -> int:
        return self._file

    def lend(self, raw: bytes) -> int | None:
        """Copy these bytes into the memory and return their offset; ``None`` if there are none or no room is left."""
        offset = self._used
        if not raw or offset + len(raw) > SIZE:
            return None
        os.pwrite(self._file, raw, offset)
        self._used = -(-(offset + len(raw)) // ALIGNMENT) * ALIGNMENT
        return offset

    def now(self, offset: int, size: int) -> bytes:
        """Return the bytes there now. They are read, not mapped: in a file cut short, a mapping would raise SIGBUS."""
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
