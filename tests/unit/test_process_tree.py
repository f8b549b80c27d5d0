"""The resources that a tree of processes uses."""

import os
from pathlib import Path

import pytest

from autograder.grading.sandbox import process_tree


def test_gpu_memory_is_asked_by_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fake nvidia-smi, since there may be no GPU."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\necho '{os.getpid()}, 5000'; echo '{os.getpid()}, 120'; echo '1, 700'; echo '[N/A], [N/A]'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert process_tree.gpu_memory_by_process()[os.getpid()] == 5120 * 2**20
    assert process_tree.ProcessTree(os.getpid(), on_gpu=True).look().gpu_memory == 5120 * 2**20
    assert process_tree.ProcessTree(os.getpid()).look().gpu_memory == 0
