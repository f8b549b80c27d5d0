"""`make bench-gpu`: one class graded on the GPU and on the CPU, and two reference kernels against the device's best.

Without a GPU the same code runs on the CPU with small inputs, untimed, only to show that it works. The page is
benchmarks/results_gpu.md.
"""

import argparse
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bench import differences, gradebook_scores, simulated
from measure import COURSE, autograde, load, machine, measure, plain_environment
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.benchmark import Timer

from autograder.course import assignment_of
from autograder.grading.sandbox.process_tree import gpu_memory_by_process
from autograder.reference import alibi_bias, alibi_slopes, apply_rotary_emb
from autograder.reference.attention import attend, causal_mask

REPORT = Path(__file__).parent / "results_gpu.md"
AT_ONCE = 4  # submissions at the same time, as in any run on a GPU


@dataclass
class OnDevice:
    """One device's results. ``gpu_memory``: peak in megabytes; ``wrong``: differences from the expected scores."""

    device: str
    wall: float
    students: int
    gpu_memory: float
    wrong: list[str]
    scores: dict[str, dict[str, float | None]]


@dataclass
class Kernel:
    """One kernel's results. ``apart``: greatest difference from its counterpart; ``times``: the timings as text."""

    name: str
    apart: float
    times: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--week", default="3")
    parser.add_argument("--students", type=int, default=24)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    busy = load()
    assignment = assignment_of(options.week, COURSE)
    classes = [grade(assignment, options.students, name) for name in dict.fromkeys((device, "cpu"))]
    text = report(assignment, classes, [rope(device), alibi(device)], busy)
    REPORT.write_text(text, encoding="utf-8")
    print(text)
    return 1 if any(one.wrong or one.scores != classes[0].scores for one in classes) else 0


# ---- a class --------------------------------------------------------------------------------------------------------


def grade(assignment: str, count: int, device: str) -> OnDevice:
    """Run the recipe of `make autograde` with this device, on a new class."""
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as scratch:
        root = Path(scratch) / "course"
        students = simulated(root, [assignment], count)[assignment]
        command = autograde(root, assignment, "--workers", str(AT_ONCE))
        environment = plain_environment() | {"AUTOGRADER_DEVICE": device}
        with open(Path(scratch) / "log", "w") as log, _GpuMemory(device) as memory:
            measured = measure(command, env=environment, cwd=COURSE, stdout=log, stderr=log)
        if measured.code:
            raise SystemExit("grading failed:\n" + (Path(scratch) / "log").read_text())
        scores = gradebook_scores(root, assignment)
    return OnDevice(device, measured.wall, count, memory.most, differences(students, scores, scores), scores)


class _GpuMemory:
    """Measures the GPU memory of all processes twice a second, until the block ends."""

    def __init__(self, device: str) -> None:
        self.most = 0.0
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._look) if device == "cuda" else None

    def _look(self) -> None:
        while not self._over.wait(0.5):
            self.most = max(self.most, sum(gpu_memory_by_process().values()) / 2**20)

    def __enter__(self) -> "_GpuMemory":
        if self._watcher:
            self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._watcher:
            self._watcher.join()


# ---- kernels --------------------------------------------------------------------------------------------------------


def rope(device: str) -> Kernel:
    """Compare RoPE with a copy, the fastest possible: both read and write each number once."""
    on_gpu = device == "cuda"
    shape, dtype = ((8, 32, 4096, 128), torch.bfloat16) if on_gpu else ((2, 3, 33, 16), torch.float32)
    x, positions = torch.randn(shape, device=device, dtype=dtype), torch.arange(shape[2], device=device)
    target = torch.empty_like(x)
    apart = (apply_rotary_emb(x, positions).cpu().double() - apply_rotary_emb(x.cpu().double(), positions.cpu())).abs()
    gigabytes = 2 * x.numel() * x.element_size() / 1e9
    times = ""
    if on_gpu:
        turned, copied = (_seconds(each) for each in (lambda: apply_rotary_emb(x, positions), lambda: target.copy_(x)))
        times = f"{gigabytes / turned:.0f} GB/s, a copy {gigabytes / copied:.0f} GB/s"
    return Kernel(f"apply_rotary_emb, {dtype}, {shape}, beside the CPU in float64", float(apart.max()), times)


def alibi(device: str) -> Kernel:
    """Compare the reference's causal ALiBi attention, which holds all scores, with torch's fused flex_attention."""
    on_gpu = device == "cuda"
    batch, heads, n, head_dim = (4, 16, 2048, 64) if on_gpu else (1, 4, 128, 16)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    q, k, v = (torch.randn(batch, heads, n, head_dim, device=device, dtype=dtype) for _ in range(3))
    bias, mask, slopes = alibi_bias(heads, n).to(device), causal_mask(n, n).to(device), alibi_slopes(heads).to(device)
    seen = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device=device)
    fused = torch.compile(flex_attention) if on_gpu else flex_attention  # uncompiled, it works without a compiler

    def score_mod(score: torch.Tensor, b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
        return score - slopes[h] * (i - j).abs()

    def ours() -> torch.Tensor:
        return attend(q, k, v, mask, bias)[0]

    def theirs() -> torch.Tensor:
        return fused(q, k, v, score_mod=score_mod, block_mask=seen)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        apart = float((ours().double() - theirs().double()).abs().max())
    times = f"{1000 * _seconds(ours):.2f} ms, flex_attention {1000 * _seconds(theirs):.2f} ms" if on_gpu else ""
    return Kernel(f"ALiBi attention, {dtype}, {(batch, heads, n, head_dim)}, beside flex_attention", apart, times)


def _seconds(run: Callable[[], object]) -> float:
    return float(Timer("run()", globals={"run": run}).blocked_autorange(min_run_time=1).median)


# ---- the page -------------------------------------------------------------------------------------------------------


def report(assignment: str, classes: list[OnDevice], kernels: list[Kernel], busy: float) -> str:
    on_gpu = classes[0].device == "cuda"
    where = f"On {torch.cuda.get_device_name(0)}." if on_gpu else (
        "**There was no GPU.** What follows ran on the CPU, with small inputs: the code is seen to work as far as that goes, and "
        "nothing is timed."
    )  # fmt: skip
    rows = [
        [
            one.device,
            str(one.students),
            f"{one.students / one.wall:.1f}" if on_gpu else "",
            f"{one.gpu_memory:.0f} MB" if one.device == "cuda" else "",
            "as due" if not one.wrong else "; ".join(one.wrong),
            "the same" if one.scores == classes[0].scores else "**others**",
        ]
        for one in classes
    ]
    return "\n".join(
        [
            "# On a GPU",
            "",
            f"Made by `make bench-gpu`. {where}",
            "",
            f"{assignment}, the simulated class, isolation on, {AT_ONCE} submissions at once:",
            "",
            "| device | submissions | a second | GPU memory, highest | scores | on all devices |",
            "| --- | ---: | ---: | ---: | --- | --- |",
            *[f"| {' | '.join(row)} |" for row in rows],
            "",
            "| kernel | differs by at most | time |",
            "| --- | ---: | --- |",
            *[f"| {one.name} | {one.apart:.1g} | {one.times or 'not timed'} |" for one in kernels],
            "",
            *[f"- {name}: {text}" for name, text in machine().items()],
            f"- cores in use by others when it began: {busy}",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
