"""Tables and figures of three papers, read from folders of ``labelward study``: writes docs/ref-paper-figures.md.

Nothing runs. ``STUDY=FOLDER`` names what ``labelward study STUDY --out FOLDER`` has written, finished or not; a task
that is missing has no figures. A study may be given several folders, whose figures are merged, the later before the
earlier, and with what is stored of it: a figure replaces that of the same seed, all others stay. The page is made of
what is stored alone. Left out: wall times and traffic, which no part shows, and tables of the user's own (``--table``).

    python benchmarks/paper_figures.py id2graph=figures/id2graph-small id2graph=figures/id2graph-table-2 \\
        ica=figures/ica label-inference=figures/label-inference \\
        --json benchmarks/results/paper-figures.json --page docs/ref-paper-figures.md
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _paper_figures_page import PAPERS, TREES, page_of, tree_column

from labelward.federation.components import with_defaults
from labelward.job import Job
from labelward.runs.diverged_runs import read_diverged
from labelward.runs.schema import RESULTS_FILE, run_folder
from labelward.studies import find_study
from labelward.studies.references import NO_DEFENSE, TIME, TRAFFIC, UTILITY, FigureKey
from labelward.studies.results import StudyFigures, information_by_tree, study_figures
from labelward.studies.run import STUDY_FILE, StudyResult
from labelward.studies.spec import Study, StudyTask

FORMAT = 1
UNREAD = "unread"
"""The table of jobs that do not run."""

Nested = dict[str, Any]


class Given(NamedTuple):
    """A folder with results of a study."""

    study: Study
    folder: Path


def given(text: str) -> Given:
    """Return a folder that the command line names, if it is one of the study."""
    name, _, folder = text.partition("=")
    if name not in PAPERS or not folder:
        raise argparse.ArgumentTypeError(f"must be STUDY=FOLDER, with one of the studies {', '.join(PAPERS)}: {text}")
    try:
        held = json.loads((Path(folder) / STUDY_FILE).read_text(encoding="utf-8"))["study"]
    except (OSError, ValueError, KeyError) as error:
        raise argparse.ArgumentTypeError(f"holds no study: {folder}") from error
    if held != name:
        raise argparse.ArgumentTypeError(f"holds study {held!r} and not {name!r}: {folder}")
    return Given(find_study(name), Path(folder))


def figures_of(found: Given, tasks: Sequence[StudyTask]) -> StudyFigures:
    """Return the figures of those tasks of a study that have results."""
    study, folder = found
    jobs = {task: study.job(task, UNREAD, _pixels(task)) for task in tasks}
    figures = study_figures(
        StudyResult(study=study, parts=study.parts, datasets=study.datasets, seeds=study.seeds, jobs=jobs), folder
    )
    for task, job in jobs.items():
        for key in _diverged(task, with_defaults(job), folder / task.path):
            figures.setdefault((task.setting.name, key), {})[task.seed] = math.nan
    informed = {name for part in study.parts if part.form == "information" for name in part.settings}
    for task in (each for each in tasks if each.setting.name in informed):
        for key, value in _information(task, folder).items():
            figures.setdefault((task.setting.name, key), {})[task.seed] = value
    return {place: series for place, series in figures.items() if place[1].column not in (TIME, TRAFFIC)}


def _diverged(task: StudyTask, job: Job, folder: Path) -> Iterator[FigureKey]:
    """Yield the utility under each defense that made the honest training diverge; it is stored as no number."""
    for variant, name in zip(job.variants(), task.defense_names, strict=True):
        if read_diverged(run_folder(folder, variant.as_list(), task.seed)) is not None:
            yield from (FigureKey(metric, task.model, name, UTILITY) for metric, *_ in task.dataset.metrics())


def stored_tasks(found: Given) -> list[StudyTask]:
    """Return the tasks of a study that have results."""
    study, folder = found
    seeds = [int(path.parent.name) for path in folder.glob(f"*/*/*/*/{RESULTS_FILE}")]
    known = study.tasks(study.parts, study.datasets, max(seeds, default=study.first_seed) - study.first_seed + 1)
    return [task for task in known if (folder / task.path / RESULTS_FILE).exists()]


def _pixels(task: StudyTask) -> list[str]:
    """Return columns to share out among the parties of images, and to have in common; all others have shares."""
    return [str(number) for number in range(max(task.dataset.image_width, task.setting.parties))]


def _information(task: StudyTask, folder: Path) -> dict[FigureKey, float]:
    """Return the information of those trees that the page shows."""
    by_tree = information_by_tree(task, folder)
    return {
        FigureKey(task.dataset.name, task.model, NO_DEFENSE, tree_column(number)): float(by_tree[number - 1])
        for number in TREES
        if number <= len(by_tree)
    }


def nested(figures: Iterable[StudyFigures], held: Nested | None = None) -> Nested:
    """Return merged figures by setting, dataset, model, defense, column and seed, over those that are held."""
    found: Nested = held or {}
    for each in figures:
        for (setting, key), series in each.items():
            place = found
            for name in (setting, *key):
                place = place.setdefault(name, {})
            place |= {str(seed): None if math.isnan(value) else round(value, 4) for seed, value in series.items()}
    return found


def encode(stored: Nested) -> str:
    """Return JSON with a line for the seeds of each figure."""
    text = json.dumps(stored, indent=1, sort_keys=True, ensure_ascii=False)
    return re.sub(r"\{[^{}]+\}", lambda innermost: " ".join(innermost[0].split()), text) + "\n"


def read(path: Path) -> Nested:
    """Return what is stored; without a file no figures."""
    stored: Nested = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"format": FORMAT, "figures": {}}
    )
    if stored.get("format") != FORMAT:
        raise SystemExit(f"{path} has format {stored.get('format')}, and not {FORMAT}")
    return stored


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=given, nargs="*", metavar="STUDY=FOLDER")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    chosen = parser.parse_args()
    stored = read(chosen.json)
    for name in dict.fromkeys(each.study.name for each in chosen.folders):
        own = [(each, stored_tasks(each)) for each in chosen.folders if each.study.name == name]
        print(f"{name}: {sum(len(tasks) for _, tasks in own)} tasks with results", flush=True)
        stored["figures"][name] = nested((figures_of(each, tasks) for each, tasks in own), stored["figures"].get(name))
    if chosen.folders:
        chosen.json.write_text(encode(stored), encoding="utf-8")
    if chosen.page:
        chosen.page.write_text(page_of(stored), encoding="utf-8")


if __name__ == "__main__":
    main()
