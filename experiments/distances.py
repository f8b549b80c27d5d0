"""Keep every key, show no unfamiliar distance: four arms in five settings, and controls.

    python experiments/distances.py                 # every run that is missing, then the page (about an hour, one core)
    python experiments/distances.py week5 controls  # only these settings
    python experiments/distances.py --table         # only the page

Each setting keeps its results, one entry per seed, in a JSON file beside this one, so an interrupted series resumes
where it stopped. results_distances.md is made from these files.
"""

import argparse

import arms
import controls
import distances_week2
import distances_week3
import distances_week5
import distances_week6
import distances_week7
import torch

SETTINGS = {
    "week2": distances_week2,
    "week3": distances_week3,
    "week5": distances_week5,
    "week6": distances_week6,
    "week7": distances_week7,
    "controls": controls,
}
PAGE = arms.HERE / "results_distances.md"


def page():
    versions = [setting.RECORD.versions() for setting in SETTINGS.values()]
    found = {name: ", ".join(sorted({v for found in versions for v in found[name]})) for name in ("python", "torch")}
    lines = [
        "# Unfamiliar distances or more keys: what was measured",
        "",
        *arms.text(
            f"""Made by `experiments/distances.py`; do not edit. Mean (lowest to highest) over {len(arms.SEEDS)}
            training seeds unless a section says otherwise. torch {found["torch"]}, Python {found["python"]}, CPU, one
            thread. Nothing is retrained: a trained model is run with distances beyond a reach counted as the reach
            ("clipped"), with keys hidden, or both."""
        ),
    ]
    for setting in SETTINGS.values():
        lines += setting.section()
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*", choices=[*SETTINGS, []], help="all if none is named")
    parser.add_argument("--table", action="store_true", help="no training, no measuring")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.table:
        for name in arguments.settings or SETTINGS:
            SETTINGS[name].measure()
            PAGE.write_text(page(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
