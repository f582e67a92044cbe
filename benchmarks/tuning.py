"""Searches measured: strategies compared, few rows first, and limits on fresh seeds, start by start.

Each start is a ``labelward tune`` in a folder of its own, so that a comparison that was stopped goes on. Figures are
added to those of other starts in the file of ``--json``; ``tables`` writes those of ``docs/ref-tuning.md`` anew.

    python benchmarks/tuning.py strategies --dataset synthetic1 --starts 3 --json benchmarks/results/tuning.json
    python benchmarks/tuning.py fidelity --dataset synthetic2 --starts 5 --few 8 --json benchmarks/results/tuning.json
    python benchmarks/tuning.py limits --starts 3 --json benchmarks/results/tuning.json
    python benchmarks/tuning.py seconds
    python benchmarks/tuning.py measure --dataset credit_default --starts 3
    python benchmarks/tuning.py tables
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _tuning_page import MARGINS, PLACES, STRICTER, rewritten

from labelward.auditing.audit import audit
from labelward.auditing.measure import measure
from labelward.data import load_dataset
from labelward.federation.components import with_defaults
from labelward.job import (
    ComponentSpec,
    DataSection,
    EncryptionSection,
    Job,
    LeakageSection,
    PartySection,
    RunSection,
    TuneSection,
    TuneVariable,
    Variant,
)
from labelward.studies import find_study
from labelward.tuning.constraints import feasible
from labelward.tuning.evaluate import Evaluator, Task
from labelward.tuning.ledger import Evaluation, FrontPoint, read_evaluations
from labelward.tuning.pareto import hypervolume, hypervolumes, pooled_bounds
from labelward.tuning.search import SEARCHES, Told
from labelward.tuning.space import Setting, Variable, default_variables
from labelward.tuning.tune import TuneResult, tune

UNITS = {"encrypt": 0.0087, "decrypt": 0.0024, "add": 0.000037}
"""Seconds of a textbook Paillier of 2048 bits; nothing packed, as in the paper."""
LIMITS = {"cost": 100.0, "leakage": 0.6}
SHARE, FRESH = 0.33, 10
PAGE = Path(__file__).parents[1] / "docs" / "ref-tuning.md"
Row = dict[str, Any]

STRATEGIES: dict[str, dict[str, Any]] = {
    "empirical": {"search": "empirical", "prefixes": False},
    "grid": {"search": "grid", "prefixes": False},
    "grid of two levels": {"search": "grid", "prefixes": False, "levels": 2},
    "random": {"search": "random", "prefixes": False},
    "MOSB": {"search": "nsga2", "prefixes": False},
    "CMOSB, penalty": {"search": "nsga2", "prefixes": False, "handling": "penalty", "constraints": LIMITS},
    "CMOSB, feasible first": {"search": "nsga2", "prefixes": False, "constraints": LIMITS},
    "random with prefixes": {"search": "random"},
    "tpe with prefixes": {"search": "tpe"},
    "tpe with prefixes, limits": {"search": "tpe", "constraints": LIMITS},
}


def job_of(dataset: str, work: Path, start: int, evaluations: int, chosen: dict[str, Any]) -> Job:
    """Return the search of one strategy and start; a generated table is written first."""
    import pyarrow.parquet as pq

    found = next(each for each in find_study("ica").datasets if each.name == dataset)
    table = found.catalog_name or dataset
    if found.generate is not None:
        table = str(work.resolve() / f"{dataset}-{start}.parquet")
        if not Path(table).exists():
            pq.write_table(found.generate(start), table)
    keys: dict[str, Any] = {"units": UNITS, "leakage": "ica", "validation": 1 / 3, "confirm": 0, **chosen}
    levels = keys.pop("levels", None)
    section = TuneSection(evaluations=evaluations, cost="unpacked", **keys)
    job = Job(
        data=DataSection(table=table, label="label", test_size=1 / 3, split="reference"),
        parties=(
            PartySection(name="active", share=found.active_share),
            PartySection(name="telco", share=1 - found.active_share),
        ),
        model=ComponentSpec("secureboost", {"bins": 32, "candidates": "node"}),
        encryption=EncryptionSection(engine="plain", insecure=True),
        attacks=(ComponentSpec("instance-clustering"),),
        leakage=LeakageSection(privacy=False),
        run=RunSection(seeds=(start,)),
        tune=section,
    )
    return job if levels is None else _with_levels(job, levels)


def _with_levels(job: Job, levels: int) -> Job:
    """Return a job whose default variables have so many levels each."""
    variables = tuple(
        TuneVariable(name=each.name, low=each.low, high=each.high, levels=levels)
        for each in default_variables(with_defaults(job), len(load_dataset(job, job.run.seeds[0]).classes))
    )
    return dataclasses.replace(job, tune=dataclasses.replace(job.tune or TuneSection(), variables=variables))


def folder_of(work: Path, *names: Any) -> Path:
    """Return the folder of one search."""
    return work / "-".join(str(each).replace(" ", "-").replace(",", "") for each in names)


# -- strategies -------------------------------------------------------------------------------------------------------


def points_of(result: TuneResult) -> list[list[tuple[float, ...]]]:
    """Return the points of each training on all rows."""
    return [[point.values for point in each.points] for each in result.evaluations if each.share == 1.0]


def flat(points: Sequence[Sequence[tuple[float, ...]]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the points of all trainings, float64 [points, objectives]."""
    return np.array([point for each in points for point in each], np.float64).reshape(-1, 3)


def history(result: TuneResult) -> list[float]:
    """Return the hypervolume after each training on all rows, between fixed bounds."""
    points = points_of(result)
    steps = [0.0, *hypervolumes(flat(points), np.array(result.record.bounds))]
    return [round(steps[end], 4) for end in np.cumsum([len(each) for each in points], dtype=np.int64)]


def kept(values: Sequence[float]) -> dict[str, float]:
    """Return a history after chosen numbers of trainings, and after the last."""
    return {str(place): values[place - 1] for place in (*PLACES, len(values)) if place <= len(values)}


def within(points: Sequence[Sequence[tuple[float, ...]]], bounds: Any) -> float:
    """Return the hypervolume of the settings within both limits, between fixed bounds."""
    every = flat(points)
    kept = every[feasible(dataclasses.replace(TuneSection(), constraints=LIMITS), every)]
    return round(hypervolume(kept, np.array(bounds)), 4) if len(kept) else 0.0


def strategies(given: argparse.Namespace) -> Iterator[Row]:
    """Yield the hypervolume of each strategy and start; the pooled one is that of the strategies asked for together."""
    for start in range(given.first, given.first + given.starts):
        found = {}
        for strategy in given.strategies:
            chosen = STRATEGIES[strategy]
            count = given.few if chosen.get("prefixes", True) else given.evaluations
            job = job_of(given.dataset, given.work, start, count, chosen)
            folder = folder_of(given.work, given.dataset, start, strategy, count)
            found[strategy] = tune(job, out=folder, jobs=given.jobs)
        pool = pooled_bounds([flat(points_of(each)) for each in found.values()])
        for strategy, result in found.items():
            points = points_of(result)
            yield {
                "dataset": given.dataset,
                "strategy": strategy,
                "start": start,
                "trainings": len(points),
                "fixed": kept(history(result)),
                "pooled": round(hypervolume(flat(points), pool), 4) if len(found) > 2 else None,
                "feasible": within(points, result.record.bounds),
            }


# -- few rows first ---------------------------------------------------------------------------------------------------


def fidelity(given: argparse.Namespace) -> Iterator[Row]:
    """Yield the hypervolume of random settings by processor seconds, all rows at once and a third of them first.

    Both searches of a start draw the same settings, and a training that both need is made once.
    """
    measured: dict[str, Evaluation] = {}
    plain = Evaluator.__call__

    def once(self: Evaluator, task: Task) -> Evaluation:
        key = self.key(task)
        if key not in measured:
            measured[key] = plain(self, task)
        return measured[key]

    Evaluator.__call__ = once  # type: ignore[method-assign]
    for start in range(given.first, given.first + given.starts):
        folders = [folder_of(given.work, given.dataset, start, arm, given.few) for arm in ("all-rows", "few-first")]
        whole = job_of(given.dataset, given.work, start, given.few, {"search": "random"})
        more = round(1.25 * given.few)
        stepwise = job_of(given.dataset, given.work, start, more, {"search": "random", "fidelity": (SHARE, 1.0)})
        for folder in folders:  # what an earlier run measured with the same draws
            measured |= {each.key: each for each in read_evaluations(folder)}
        first = tune(whole, out=folders[0])
        second = tune(stepwise, out=folders[1], repeat=[folders[0]], force=True)
        rows = [_by_seconds(each) for each in (first, second)]
        common = min(seconds[-1] for seconds, _ in rows)
        yield {
            "dataset": given.dataset,
            "start": start,
            "trainings": [sum(each.share == share for each in second.evaluations) for share in (SHARE, 1.0)],
            "seconds": round(common, 1),
            "all rows": _until(rows[0], common),
            "few first": _until(rows[1], common),
        }


def _by_seconds(result: TuneResult) -> tuple[list[float], list[float]]:
    """Return processor seconds spent and hypervolume after each evaluation, in the order of the search."""
    seconds = np.cumsum([each.seconds for each in result.evaluations]).tolist()
    steps, reached, grown = iter(history(result)), 0.0, []
    for each in result.evaluations:
        reached = next(steps) if each.share == 1.0 else reached
        grown.append(reached)
    return seconds, grown


def _until(row: tuple[list[float], list[float]], seconds: float) -> float:
    """Return the hypervolume after so many seconds."""
    return max((value for spent, value in zip(*row, strict=True) if spent <= seconds), default=0.0)


# -- limits on fresh seeds --------------------------------------------------------------------------------------------


def limits(given: argparse.Namespace) -> Iterator[Row]:
    """Yield how many settings of a front that five seeds pick below a limit of leakage stay below it on five others.

    All ways to divide the further seeds are counted.
    """
    for start in range(given.first, given.first + given.starts):
        chosen = {**STRATEGIES["tpe with prefixes, limits"], "confirm": FRESH}
        job = job_of(given.dataset, given.work, start, given.few, chosen)
        found = tune(job, out=folder_of(given.work, given.dataset, start, "fresh", given.few), jobs=given.jobs)
        again = [each for each in found.front if len(each.confirmed) == FRESH]
        for limit, margin in itertools.product(STRICTER, MARGINS):
            picked, held = _held(again, limit, margin)
            yield {
                "dataset": given.dataset,
                "start": start,
                "points": len(again),
                "limit": limit,
                "margin": margin,
                "picked": picked,
                "held": held,
            }


def _held(front: Sequence[FrontPoint], limit: float, margin: float) -> tuple[int, int]:
    """Return how often a setting was picked, and how often it held; margins are in standard errors of five seeds."""
    picked = held = 0
    for point in front:
        leakage = np.array([each[2] for each in point.confirmed])
        for chosen in itertools.combinations(range(FRESH), FRESH // 2):
            seen, fresh = leakage[list(chosen)], np.delete(leakage, chosen)
            if seen.mean() + margin * _error(seen) <= limit:
                picked += 1
                held += bool(fresh.mean() <= limit + _error(fresh))
    return picked, held


def _error(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Return the standard error of a mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


# -- seconds ----------------------------------------------------------------------------------------------------------


def seconds(given: argparse.Namespace) -> Iterator[Row]:
    """Yield processor milliseconds of the search itself, with objectives that are a function of the setting."""
    section = TuneSection(evaluations=1_000, population=20)
    model = ComponentSpec("secureboost", {})
    variables = default_variables(dataclasses.replace(job_of("synthetic1", given.work, 0, 1, {}), model=model), 2)
    for strategy in ("tpe", "nsga2"):
        for count in (20, 100, 200, 400, 800):
            search = SEARCHES[strategy](variables, dataclasses.replace(section, search=strategy), given.first)
            spent, done = 0.0, 0
            while done < count:
                start = time.process_time()
                asked = search.ask()
                spent += time.process_time() - start
                told = [_made_up(variables, each) for each in asked]
                start = time.process_time()
                search.tell(told)
                spent, done = spent + time.process_time() - start, done + len(asked)
            yield {"strategy": strategy, "trainings": done, "milliseconds": round(1000 * spent / done, 2)}


def _made_up(variables: Sequence[Variable], setting: Setting) -> Told:
    """Return three objectives that conflict."""
    places = np.array([each.place(setting[each.name]) for each in variables])
    learned, rough = 1 - float(np.exp(-4 * places[0])), 0.02 * float(np.sin(40 * places.sum()))
    values = (0.6 - 0.5 * learned + rough, float(places.mean()), 0.4 * learned + rough + 0.1)
    return Told(setting, values, points=np.array([values]))


def measured(given: argparse.Namespace) -> Iterator[Row]:
    """Yield processor seconds of ``measure`` and of ``audit`` for the same variant and seed, by turns."""
    job = dataclasses.replace(job_of(given.dataset, given.work, given.first, 1, {}), tune=None)
    job = with_defaults(dataclasses.replace(job, defenses=(Variant((ComponentSpec("local-trees", {"count": 3}),)),)))
    measure(job, job.variants()[-1])  # compiled code is loaded
    found: Row = {"dataset": given.dataset, "measure": [], "audit": []}
    for turn in range(given.starts):
        start = time.process_time()
        measure(job, job.variants()[-1])
        middle = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            audit(job, Path(folder) / str(turn))
        found["measure"].append(round(middle - start, 3))
        found["audit"].append(round(time.process_time() - middle, 3))
    yield found


PARTS = {"strategies": strategies, "fidelity": fidelity, "limits": limits, "seconds": seconds, "measure": measured}
SAME = ("dataset", "strategy", "start", "limit", "margin", "trainings")
"""What a row is about; a new one replaces that of an earlier run."""


def main() -> None:
    """Run what is asked for and missing, and store the rows beside those of other starts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", choices=[*PARTS, "tables"], default="tables")
    parser.add_argument("--dataset", default="synthetic1")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="number of the first start")
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--few", type=int, default=20, help="trainings of strategies with prefixes")
    parser.add_argument("--strategies", nargs="*", default=list(STRATEGIES))
    parser.add_argument("--work", type=Path, default=Path("build/tuning"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "tuning.json")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    stored: dict[str, list[Row]] = json.loads(given.json.read_text()) if given.json.exists() else {}
    for row in PARTS[given.part](given) if given.part != "tables" else ():
        about = [row.get(name) for name in SAME]
        others = [each for each in stored.get(given.part, []) if [each.get(name) for name in SAME] != about]
        stored[given.part] = [*others, row]
        print(json.dumps(row), flush=True)
        given.json.write_text(json.dumps(stored, indent=1) + "\n")
    if given.part == "tables":
        PAGE.write_text(rewritten(PAGE.read_text(), stored))


if __name__ == "__main__":
    main()
