"""The tables of ``docs/ref-tuning.md``, made of what ``tuning.py`` stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import t

Row = Mapping[str, Any]
Stored = Mapping[str, Sequence[Row]]
MARGINS = (0.0, 1.0, 2.0)
STRICTER = (0.6, 0.55, 0.52)
PLACES = (5, 10, 15, 20, 40, 80, 140, 200, 400, 800)
"""Numbers of trainings after which a history is kept."""
Arm = tuple[str, int]
_PAIRS: Sequence[tuple[Arm, Arm, str]] = (
    (("tpe with prefixes", 20), ("CMOSB, penalty", 200), "fixed"),
    (("tpe with prefixes", 20), ("random with prefixes", 20), "fixed"),
    (("model of curves (not kept)", 20), ("CMOSB, penalty", 200), "fixed"),
    (("model of curves (not kept)", 20), ("tpe with prefixes", 20), "fixed"),
    (("random with prefixes", 20), ("CMOSB, penalty", 200), "fixed"),
    (("tpe with prefixes, limits", 20), ("tpe with prefixes", 20), "feasible"),
    (("CMOSB, penalty", 200), ("MOSB", 200), "feasible"),
    (("CMOSB, feasible first", 200), ("MOSB", 200), "feasible"),
    (("CMOSB, penalty", 800), ("MOSB", 800), "feasible"),
    (("CMOSB, feasible first", 800), ("MOSB", 800), "feasible"),
)
"""Strategies and trainings compared start by start, and in what."""


def rewritten(page: str, stored: Stored) -> str:
    """Return a page whose marked blocks hold the tables of what is stored."""

    def block(found: re.Match[str]) -> str:
        return "\n".join([found[1], *TABLES[found[2]](stored), found[4]])

    return re.sub(r"(<!-- table: ([a-z ]+) -->)\n(.*?)(<!-- end -->)", block, page, flags=re.DOTALL)


def spread(values: Sequence[float]) -> str:
    """Return mean and standard deviation."""
    mean, std = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return f"{mean:.3f}±{std:.3f}".replace("0.", ".")


def interval(values: Sequence[float]) -> str:
    """Return the mean of differences with its 95 % interval by Student's distribution."""
    error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    mean, half = float(np.mean(values)), float(t.ppf(0.975, len(values) - 1)) * error
    return f"{mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]".replace("0.", ".").replace("-", "−")


def _strategies(stored: Stored) -> list[str]:
    rows = stored["strategies"]
    found = ["| table | strategy | starts | trainings | fixed bounds | pooled | within limits |", "|---" * 7 + "|"]
    for dataset, strategy, trainings in _groups(rows):
        own = _of(rows, dataset, strategy, trainings)
        pooled = [each["pooled"] for each in own if each["pooled"] is not None]
        cells = [
            dataset,
            strategy,
            str(len(own)),
            str(trainings),
            spread([_last(each) for each in own]),
            f"{spread(pooled)} ({len(pooled)})" if pooled else "–",
            spread([each["feasible"] for each in own]),
        ]
        found.append(f"| {' | '.join(cells)} |")
    return found


def _history(stored: Stored) -> list[str]:
    rows = stored["strategies"]
    found = [f"| table | strategy | starts | {' | '.join(map(str, PLACES))} |", "|---" * (3 + len(PLACES)) + "|"]
    for dataset, strategy, trainings in _groups(rows):
        own = [each["fixed"] for each in _of(rows, dataset, strategy, trainings)]
        reached = [
            f"{np.mean([line[str(place)] for line in own]):.3f}".lstrip("0") if trainings >= place else ""
            for place in PLACES
        ]
        if any(reached):
            found.append(f"| {dataset} | {strategy} | {len(own)} | {' | '.join(reached)} |")
    return found


def _differences(stored: Stored) -> list[str]:
    rows = stored["strategies"]
    found = ["| table | difference | of | start by start | mean [95 %] |", "|---" * 5 + "|"]
    for dataset in dict.fromkeys(each["dataset"] for each in rows):
        for better, than, what in _PAIRS:
            of = {
                ((each["strategy"], each["trainings"]), each["start"]): _last(each) if what == "fixed" else each[what]
                for each in rows
                if each["dataset"] == dataset
            }
            starts = sorted(start for name, start in of if name == better and (than, start) in of)
            if len(starts) > 1:
                apart = [of[better, start] - of[than, start] for start in starts]
                each = ", ".join(f"{value:+.4f}" for value in apart).replace("0.", ".").replace("-", "−")
                title = "all settings" if what == "fixed" else "within limits"
                names = f"{better[0]} ({better[1]}) − {than[0]} ({than[1]})"
                found.append(f"| {dataset} | {names} | {title} | {each} | {interval(apart)} |")
    return found


def _fidelity(stored: Stored) -> list[str]:
    rows = stored["fidelity"]
    found = ["| table | start | seconds | all rows | a third first | trainings |", "|---" * 6 + "|"]
    for each in rows:
        few, whole = each["trainings"]
        values = [f"{each[name]:.3f}".lstrip("0") for name in ("all rows", "few first")]
        cells = [each["dataset"], str(each["start"]), f"{each['seconds']:.0f}", *values, f"{few} + {whole}"]
        found.append(f"| {' | '.join(cells)} |")
    for few, whole in dict.fromkeys(tuple(each["trainings"]) for each in rows):
        own = [each for each in rows if each["trainings"] == [few, whole]]
        means = [spread([each[name] for each in own]) for name in ("all rows", "few first")]
        found.append(f"| mean | {len(own)} | | {means[0]} | {means[1]} | {few} + {whole} |")
    return found


def _limits(stored: Stored) -> list[str]:
    rows = stored.get("limits", ())
    starts = len({each["start"] for each in rows})
    titles = " | ".join(f"margin {margin:.0f}: picked, hold" for margin in MARGINS)
    found = [f"| limit of leakage ({starts} starts) | {titles} |", "|---" * (1 + len(MARGINS)) + "|"]
    for limit in STRICTER if rows else ():
        cells = []
        for margin in MARGINS:
            own = [each for each in rows if (each["limit"], each["margin"]) == (limit, margin)]
            picked, held = sum(each["picked"] for each in own), sum(each["held"] for each in own)
            cells.append(f"{picked}, {100 * held / picked:.1f} %" if picked else "0")
        found.append(f"| {limit:.2f} | {' | '.join(cells)} |".replace("| 0.", "| ."))
    return found


def _seconds(stored: Stored) -> list[str]:
    found = ["| strategy | trainings | ms a training |", "|---" * 3 + "|"]
    for each in stored["seconds"]:
        cells = [each["strategy"], each["trainings"], f"{each['milliseconds']:.1f}"]
        found.append(f"| {' | '.join(map(str, cells))} |")
    return found


def _measure(stored: Stored) -> list[str]:
    found = ["| table | `measure`, seconds | `audit`, seconds | share, start by start |", "|---" * 4 + "|"]
    for each in stored["measure"]:
        shares = [one / whole for one, whole in zip(each["measure"], each["audit"], strict=True)]
        seconds = [f"{np.mean(each[name]):.2f}" for name in ("measure", "audit")]
        cells = [each["dataset"], *seconds, ", ".join(f"{share:.2f}".lstrip("0") for share in shares)]
        found.append(f"| {' | '.join(cells)} |")
    return found


_ABOUT = ("dataset", "strategy", "trainings")


def _groups(rows: Sequence[Row]) -> list[tuple[str, str, int]]:
    return list(dict.fromkeys(tuple(each[name] for name in _ABOUT) for each in rows))


def _of(rows: Sequence[Row], *about: str | int) -> list[Row]:
    return [each for each in rows if tuple(each[name] for name in _ABOUT) == about]


def _last(row: Row) -> float:
    """Return the hypervolume of all trainings of a search."""
    return float(row["fixed"][str(row["trainings"])])


TABLES: Mapping[str, Callable[[Stored], list[str]]] = {
    "strategies": _strategies,
    "history": _history,
    "differences": _differences,
    "fidelity": _fidelity,
    "limits": _limits,
    "seconds": _seconds,
    "measure": _measure,
}
