"""What only week 5 has: a model that lives in the sandbox, shipped results, released data files."""

import importlib.util
import json
import re

import nbformat
import numpy as np
import torch
from support import COURSE

from autograder.checks import probe_model as trusted
from autograder.classroom import make_course_root
from autograder.grading.results import Options
from autograder.grading.run import grade_submissions
from autograder.manifest import RELEASED_FILES
from autograder.misconceptions.bank import bank

WEEK = "week5_extrapolation"


def module(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_the_locked_model_and_the_trusted_one_are_the_same_text():
    text = (COURSE / "source" / f"{WEEK}.py").read_text(encoding="utf-8")
    locked = re.search(r'# %% nbgrader={"grade_id": "probe_model", "locked": true}\n(.*?)\n+# %%', text, re.DOTALL).group(1)
    ours = (COURSE / "autograder" / "checks" / "probe_model.py").read_text(encoding="utf-8")
    assert ours[ours.index("class ProbeModel"):].strip() == locked.strip()


def test_the_trusted_model_sees_what_a_call_leaves_behind():
    model = trusted.ProbeModel()
    weights = {name: torch.randn_like(value) for name, value in model.state_dict().items()}
    flags = [True, False, False, True, True, False, True, False]
    model = trusted.probe_model(weights, flags)
    assert trusted.observe(model) == {"flags": flags, "recorded a graph": False, "has gradients": False, "gradient mode": True}
    model(torch.zeros(1, 3, dtype=torch.long)).sum().backward()
    seen = trusted.observe(model)
    assert seen["recorded a graph"] and seen["has gradients"]


def test_the_table_is_made_from_the_shipped_results():
    experiments = module("extrapolation", COURSE / "experiments" / "extrapolation.py")
    results = json.loads((COURSE / "source" / "week5_results.json").read_text())
    assert (COURSE / "experiments" / "results.md").read_text(encoding="utf-8") == experiments.tables(results)
    assert all(len(rows) == 5 for kind in ("fixed", "window") for rows in results[kind].values())


def test_shipped_weights_are_plain_arrays_and_small():
    ready = module("ready_encodings", COURSE / "source" / "ready_encodings.py")
    for name, options in (("week5_rope.npz", {"n_tokens": len(ready.ALPHABET), "encoding": "rope"}),
                          ("week5_needle.npz", {"n_tokens": ready.NEEDLE_TOKENS, "encoding": "alibi"})):
        path = COURSE / "source" / name
        assert path.stat().st_size < 300_000 and name in RELEASED_FILES[WEEK]
        with np.load(path, allow_pickle=False) as arrays:
            weights = {key: torch.from_numpy(arrays[key].astype(np.float32)) for key in arrays.files}
        ready.SmallTransformer(**options).load_state_dict(weights)


def test_a_module_made_in_the_sandbox_is_graded_like_one_made_here(tmp_path):
    """Flags, gradients and losses of `loss_by_length` cross the boundary: same points as the banks say."""
    make_course_root(COURSE, tmp_path / "course", [WEEK])
    entries = [s for s in bank(WEEK, "loss_by_length") if s.is_right or s.score or s.name == "loss_whole_window"]
    files = {}
    for entry in entries:
        notebook = nbformat.read(COURSE / "notebooks" / WEEK / f"{WEEK}.ipynb", as_version=4)
        next(cell for cell in notebook.cells if cell.id == "loss_by_length").source = entry.source
        files[entry.name] = tmp_path / "course" / f"{entry.name}.ipynb"
        nbformat.write(notebook, files[entry.name])
    graded = grade_submissions(tmp_path / "course", WEEK, files, Options(device="cpu"))
    for entry in entries:
        result = graded[entry.name].result
        assert result is not None, graded[entry.name].reason
        text = "".join(output["text"] for output in result.outputs["loss_by_length_tests"])
        assert result.scores["loss_by_length_tests"] == (4 if entry.is_right else entry.score), (entry.name, text)
        assert entry.is_right == ("loss_by_length_check" not in result.failed_checks), entry.name
        assert entry.says in text or "must raise" in text, (entry.name, text)
