"""Week 7 against answers that lie: caches that are none, modules that remember, replays across the pieces of a text, and
earlier answers that misbehave when a later one is graded on top of them. All through the real sandbox, in one run."""

import nbformat
import pytest
from helpers import COURSE

from autograder.classroom import make_course_root
from autograder.grading.messages import Options
from autograder.grading.pipeline import grade_submissions
from autograder.misconceptions.bank import bank

pytestmark = pytest.mark.nightly

WEEK = "week7_capstone"
CACHED, CROSS, BLOCK = "CachedAttention_tests", "CrossAttention_tests", "HybridDecoderBlock_tests"


def answer(grade_id: str, name: str) -> str:
    return next(solution.source for solution in bank(WEEK, grade_id) if solution.name == name)


PLAIN, CROSS_PLAIN = answer("CachedAttention", "CachedPlain"), answer("CrossAttention", "CrossPlain")
WHOLE = "    def forward(self, x, cache=None):\n"


def wrapped(body: str) -> str:
    """The right layer as `Honest`, and an answer that uses it."""
    return PLAIN.replace("class CachedAttention", "class Honest") + "\n\nclass CachedAttention(Honest):\n" + body


# name: (answers by cell, due scores by cell); what is due was written by hand
SUBMISSIONS: dict[str, tuple[dict[str, str], dict[str, float]]] = {
    "right": ({"CachedAttention": PLAIN, "CrossAttention": CROSS_PLAIN}, {CACHED: 6, CROSS: 4}),
    # what it knows of the text stands in the module; the cache has the right shapes and zeros in it
    "zeros_for_a_cache": (
        {
            "CachedAttention": wrapped(
                WHOLE + "        out, self.seen = super().forward(x, None if cache is None else self.seen)\n"
                "        return out, tuple(torch.zeros_like(part) for part in self.seen)\n"
            )
        },
        {CACHED: 5},
    ),
    # the same, kept by the class: a new module with the same weights does not help, nor does a cache from elsewhere
    "kept_by_the_class": (
        {
            "CachedAttention": wrapped(
                "    seen = None\n"
                + WHOLE
                + "        out, CachedAttention.seen = super().forward(x, None if cache is None else CachedAttention.seen)\n"
                "        return out, tuple(torch.zeros_like(part) for part in CachedAttention.seen)\n"
            )
        },
        {CACHED: 5},
    ),
    # the whole text is computed again at each call
    "whole_text_again": (
        {
            "CachedAttention": wrapped(
                WHOLE + "        self.text = x if cache is None else torch.cat((self.text, x), dim=1)\n"
                "        out, cache = super().forward(self.text)\n        return out[:, -x.shape[1]:], cache\n"
            )
        },
        {CACHED: 5},
    ),
    # an object of its own in place of tensors: it cannot leave the sandbox, so nothing can be continued
    "cache_is_an_object": (
        {
            "CachedAttention": wrapped(
                WHOLE + "        out, cache = super().forward(x, None if cache is None else cache.parts)\n"
                "        class Box: pass\n        box = Box()\n        box.parts = cache\n        return out, box\n"
            )
        },
        {CACHED: 2.75},
    ),
    # outputs of texts already seen are replayed by the first token
    "replayed": (
        {
            "CachedAttention": wrapped(
                "    outputs = {}\n" + WHOLE + "        out, new = super().forward(x)\n"
                "        key = tuple(x.flatten()[:4].tolist())\n        out = self.outputs.setdefault(key, out)\n"
                "        return out, new if cache is None else tuple(torch.cat(both, 2) for both in zip(cache, new))\n"
            )
        },
        None,
    ),
    # state_dict says one thing, the module does another
    "weights_not_used": (
        {
            "CachedAttention": wrapped(
                WHOLE + "        out, cache = super().forward(x, cache)\n        return torch.zeros_like(out), cache\n"
            )
        },
        {CACHED: 0},
    ),
    # earlier answers that misbehave cost nothing in later ones
    "earlier_exits": (
        {
            "grouped_query_attention": "import sys\ndef grouped_query_attention(q, k, v, mask=None):\n    sys.exit(0)",
            "CachedAttention": PLAIN,
        },
        {CACHED: 6},
    ),
    "earlier_dies": (
        {
            "grouped_query_attention": "import os\ndef grouped_query_attention(q, k, v, mask=None):\n    os._exit(1)",
            "CachedAttention": PLAIN,
            "CrossAttention": CROSS_PLAIN,
        },
        {CACHED: 6, CROSS: 4},
    ),
    "earlier_returns_itself": (
        {
            "grouped_query_attention": "def grouped_query_attention(q, k, v, mask=None):\n    return grouped_query_attention, [q]",
            "CachedAttention": PLAIN,
            "CrossAttention": CROSS_PLAIN,
        },
        {CACHED: 6, CROSS: 4},
    ),
    "earlier_changes_its_mind": (
        {
            "grouped_query_attention": "def grouped_query_attention(q, k, v, mask=None):\n"
            "    return torch.rand_like(q), torch.rand(*q.shape[:3], k.shape[2])",
            "CachedAttention": "class CachedAttention(nn.Module):\n"
            + PLAIN.split("\n", 1)[1].replace("out = scores.softmax(dim=-1) @ values", "out = torch.rand_like(q)"),
        },
        {CACHED: 0},
    ),
    "cross_attention_of_zeros": (
        {
            "CrossAttention": CROSS_PLAIN.replace("return self.o_proj(out)", "return torch.zeros_like(x)"),
            "HybridDecoderBlock": answer("HybridDecoderBlock", "block_no_cross"),
        },
        {BLOCK: 0},
    ),
}


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """Scores by submission and cell."""
    root = tmp_path_factory.mktemp("lies")
    make_course_root(COURSE, root / "course", [WEEK])
    paths = {}
    for name, (answers, _) in SUBMISSIONS.items():
        notebook = nbformat.read(COURSE / "notebooks" / WEEK / f"{WEEK}.ipynb", as_version=4)
        for cell in notebook.cells:
            cell.source = answers.get(cell.id, cell.source)
        paths[name] = root / f"{name}.ipynb"
        nbformat.write(notebook, paths[name])
    graded: dict = {}
    grade_submissions(root / "course", WEEK, paths, Options(device="cpu"), graded.__setitem__, again=True)
    return {name: outcome.result.scores for name, outcome in graded.items()}


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_a_lie_earns_what_it_is_due(name: str, scores: dict[str, dict[str, float]]) -> None:
    due = SUBMISSIONS[name][1]
    if due is None:
        assert scores[name][CACHED] < 4
    else:
        assert {cell: scores[name][cell] for cell in due} == due
