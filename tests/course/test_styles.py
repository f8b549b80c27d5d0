"""Honest code in many styles crosses the sandbox boundary and gets its due."""

import pytest
from helpers import COURSE, WEEK3, hand_in

from autograder.classroom import make_course_root
from autograder.grading.messages import Graded, Options
from autograder.grading.pipeline import grade_submissions

ROTATE = """
    angles = positions.double()[..., None] * base ** (-torch.arange(0, x.shape[-1], 2, device=x.device).double() / x.shape[-1])
    if x.shape[-1] % 2:
        raise ValueError("head_dim must be even")
    if positions.ndim == 2:
        angles = angles[:, None]
    cos, sin = angles.cos(), angles.sin()
    even, odd = x.double()[..., 0::2], x.double()[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).to(x.dtype)
"""
HEAD = "def apply_rotary_emb(x, positions, base=10000.0):"
INNER = HEAD.replace("apply_rotary_emb", "rotate") + ROTATE

STYLES: dict[str, tuple[str, float]] = {
    "prints": (HEAD + "\n    print('positions', positions)" + ROTATE, 6),
    "warns on stderr": (
        HEAD + "\n    import sys, warnings\n    warnings.warn('careful')\n    print('!', file=sys.stderr)" + ROTATE,
        6,
    ),
    "keeps state": ("calls = []\n" + HEAD + "\n    calls.append(tuple(x.shape))" + ROTATE, 6),
    "uses globals": (
        "LAYOUT = 'interleaved'\n" + HEAD + "\n    global LAYOUT\n    assert LAYOUT == 'interleaved'" + ROTATE,
        6,
    ),
    "decorator": (
        "import functools\ndef logged(f):\n    @functools.wraps(f)\n    def g(*a, **k):\n        return f(*a, **k)\n    return g\n"
        "@logged\n" + HEAD + ROTATE,
        6,
    ),
    "class with __call__": (
        INNER + "class Rotary:\n    def __call__(self, x, positions, base=10000.0):\n"
        "        return rotate(x, positions, base)\napply_rotary_emb = Rotary()",
        6,
    ),
    "lambda": (INNER + "apply_rotary_emb = lambda x, positions, base=10000.0: rotate(x, positions, base)", 6),
    "functools.partial": ("import functools\n" + INNER + "apply_rotary_emb = functools.partial(rotate)", 6),
    "nn.Module": (
        INNER + "class Rotary(nn.Module):\n    def forward(self, x, positions, base=10000.0):\n"
        "        return rotate(x, positions, base)\napply_rotary_emb = Rotary()",
        6,
    ),
    "numpy inside": (
        HEAD
        + """
    if x.shape[-1] % 2:
        raise ValueError("head_dim must be even")
    w = torch.from_numpy(base ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1]))
    angles = positions.double()[..., None] * w
    angles = angles[:, None] if positions.ndim == 2 else angles
    c, s = torch.from_numpy(np.cos(angles.numpy())), torch.from_numpy(np.sin(angles.numpy()))
    a, b = x.double()[..., 0::2], x.double()[..., 1::2]
    return torch.stack((a * c - b * s, a * s + b * c), dim=-1).flatten(-2).to(x.dtype)
""",
        5.75,  # NumPy works on the CPU only
    ),
    "a magic and a shell line": ("%matplotlib inline\n!true\n" + HEAD + ROTATE, 6),
    "defines and plots": (HEAD + ROTATE + "\nplt.plot([1, 2]); plt.show()", 6),
    "detaches": (HEAD + ROTATE.replace("x.double()", "x.detach().double()"), 5.5),
    "numpy throughout": (HEAD + "\n    return x.detach().numpy()", 0),
    "returns nothing": (HEAD + ROTATE.replace("return ", "result = "), 0),
    "exits": (HEAD + "\n    raise SystemExit", 0),
    "not answered": (HEAD + "\n    raise NotImplementedError", 0),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graded]:
    root = tmp_path_factory.mktemp("styles") / "course"
    make_course_root(COURSE, root, [WEEK3])
    files = {style: hand_in(root, style, {"apply_rotary_emb": source}) for style, (source, _) in STYLES.items()}
    came: dict[str, Graded] = {}
    grade_submissions(root, WEEK3, files, Options(device="cpu"), came.__setitem__)
    return came


@pytest.mark.parametrize("style", STYLES)
def test_style(graded: dict[str, Graded], style: str) -> None:
    assert isinstance(graded[style], Graded), graded[style]
    result = graded[style].result
    text = "".join(output["text"] for output in result.outputs["apply_rotary_emb_tests"])
    assert result.scores["apply_rotary_emb_tests"] == STYLES[style][1], text


def test_figures_and_prints_come_back_for_the_instructor(graded: dict[str, Graded]) -> None:
    outputs = graded["defines and plots"].result.outputs["apply_rotary_emb"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
