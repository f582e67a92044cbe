"""The page of ``source_coding.py``: tables of what is stored, and the claims that are checked against it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from _page_cells import Series, markdown_table, mean_of, range_cell, seeds_text

Figures = Mapping[str, Mapping[str, Mapping[str, Series]]]

_HEAD = """# Figures of source coding

Written by `benchmarks/source_coding.py` from `benchmarks/results/source-coding.json`, which has the figure of each
seed; not to be edited. [Source coding](explanation-source-coding.md) says what they mean.

Means over the seeds, and the least and the largest in brackets. Leakage is the mean over the passive parties, of an AUC
or its reverse, whichever is larger (`auc_either`); *sign* is the AUC of `direct`. AUC is the joined model's on the test
rows. Noise that protects is drawn by the system, so that figures under it differ between two runs of the command.
"""


def page_of(found: Figures) -> str:
    """Return the page in Markdown."""
    sections = (_credit, _claims, _utility, _heads, _gradients, _columns, _criteo, _bank)
    return "\n".join([_HEAD, *(section(found) for section in sections)])


def _seeds(job: Mapping[str, Mapping[str, Series]]) -> str:
    return seeds_text([len(figures["AUC"]) for figures in job.values() if "AUC" in figures])


def _credit(found: Figures) -> str:
    """Return the table of codings, adversarial training and noise."""
    heads = ("fitted to", "spectral", "test rows", "norm", "sign, 1 epoch", "5 epochs", "AUC")
    names = ("spectral, either", "spectral, test rows", "norm, either", "direct, auc", "direct 5 epochs, auc", "AUC")
    jobs = {"labels, with a bottom model of the active party": found["active bottom"]["none"]}
    words = {"none": "labels, own columns left out", "labels, joined": "the same, joined by logistic regression"}
    jobs |= {words.get(name, f"`{name}`"): figures for name, figures in found["codings"].items()}
    rows = [[title, *(range_cell(figures.get(name)) for name in names)] for title, figures in jobs.items()]
    about = f"""## Credit default

{_seeds(found["codings"])}. 13,500 training rows are aligned and 8,100 the active party's alone; 2,400 validation and
6,000 test rows; 11 columns at the active party, 12 at six passive ones. Bottom models `"mlp"` of width 32, no top
model; Adam, .005, batches of 1,024, ten epochs. `beta` is that of `adversarial` behind `"logitboost"`.
"""
    return f"{about}\n{markdown_table(heads, rows)}"


def _change(found: Figures, name: str, figure: str, base: tuple[str, str], job: str = "codings") -> dict[str, float]:
    """Return by seed how a coding of a job differs from another training."""
    before, after = found[base[0]][base[1]][figure], found[job][name][figure]
    return {seed: after[seed] - value for seed, value in before.items() if seed in after}


def _claims(found: Figures) -> str:
    """Return what was expected, what was found, and whether it holds."""
    codings = found["codings"]
    label = ("codings", "labels, joined")
    rows: list[list[str]] = []

    def claim(title: str, text: str, holds: bool) -> None:
        rows.append([title, text, "yes" if holds else "**no**"])

    def mean(name: str, figure: str) -> float:
        return mean_of(codings[name][figure])

    for name, expected in (("none", 0.600), ("offset", 0.568), ("l2", 0.564)):
        value = mean(name, "spectral, either")
        claim(f"spectral of `{name}` is {expected:.3f} ± .02", f"{value:.3f}", abs(value - expected) <= 0.02)
    for name in ("offset", "l2"):
        change = list(_change(found, name, "spectral, either", label).values())
        claim(
            f"`{name}` lowers it in every seed", f"{sum(each < 0 for each in change)} of {len(change)}", max(change) < 0
        )
    for base, title in _BASES.items():
        for name, limit, each in _LIMITS:
            change = list(_change(found, name, "AUC", base, "utility").values())
            what = f"AUC of `{name}` less that of {title}: mean at least {limit}" + (
                f", each {each}" if each > -1 else ""
            )
            claim(
                what,
                f"{np.mean(change):.4f}, least {min(change):.4f}, {len(change)} seeds",
                bool(np.mean(change) >= limit and min(change) >= each),
            )
    for title, figures in (("", codings), (" (fewer rows)", found["heads, fewer rows"])):
        for slower in ("", "rate .003, ") if title else ("",):
            rows += _beta_claims(figures, slower, f"{title}{' of heads with rate .003' if slower else ''}")
    for name in ("none", "adaboost", "offset", "logitboost"):
        value = mean(name, "direct, auc")
        claim(f"sign of `{name}` has an AUC of at least .98", f"{value:.4f}", value >= 0.98)
    noisy = found.get("noisy labels", {}).get("randomized-response")
    if noisy:
        value = mean_of(noisy["direct, accuracy"])
        claim("accuracy of the sign under `randomized-response`, ε = 1, at most .751", f"{value:.3f}", value <= 0.751)
    value = mean("marvell 4", "norm gradients, either")
    claim("length of gradients under `marvell`, s = 4, has an AUC of at most .58", f"{value:.3f}", value <= 0.58)
    return f"### Expected and found\n\n{markdown_table(('expected', 'found', 'holds'), rows)}"


_LIMITS: tuple[tuple[str, float, float], ...] = (
    *(("offset", -0.01, -0.02), ("logitboost", -0.015, -0.02)),
    *(("offset, validation", -0.005, -1.0), ("logitboost, validation", -0.005, -1.0)),
)
"""Codings, and the least mean and the least single difference of AUC that is asked for."""
_BASES = {
    ("utility", "labels, joined"): "joined labels",
    ("utility, active bottom", "none"): "labels with an active bottom model",
}
_BETAS = ("beta 0.05", "beta 0.5", "beta 2")


def _beta_claims(job: Mapping[str, Mapping[str, Series]], slower: str, title: str) -> list[list[str]]:
    """Return the claims about ``beta``, of heads whose chains begin with a name."""
    names = ("logitboost", *(f"{slower}{each}" for each in _BETAS))
    spectral, utility = ([mean_of(job[name][figure]) for name in names] for figure in ("spectral, either", "AUC"))
    rows = []
    for name, value, expected in zip(("beta 0", *_BETAS), spectral, (0.608, 0.592, 0.580, 0.563), strict=True):
        rows.append((f"spectral of `{name}` is {expected:.3f} ± .02", f"{value:.3f}", abs(value - expected) <= 0.02))
    falls = np.diff(spectral)
    rows.append(("spectral falls with every step", ", ".join(f"{each:.3f}" for each in falls), bool((falls < 0).all())))
    near = utility[1] - utility[0]
    rows.append(("AUC at `beta` .05 within .005 of 0", f"{near:.4f}", abs(near) <= 0.005))
    rows.append(("AUC at `beta` 2 below .72", f"{utility[3]:.3f}", utility[3] < 0.72))
    return [[f"{what}{title}", text, "yes" if holds else "**no**"] for what, text, holds in rows]


def _utility(found: Figures) -> str:
    """Return the table of paired differences of AUC."""
    rows = []
    for base, title in _BASES.items():
        for name in ("logitboost", "logitboost, validation", "offset", "offset, validation"):
            change = list(_change(found, name, "AUC", base, "utility").values())
            spread, mean = float(np.std(change, ddof=1)), float(np.mean(change))
            wide = 1.96 * spread / len(change) ** 0.5
            texts = (
                f"{mean:+.4f}",
                f"{spread:.4f}",
                f"{mean - wide:+.4f} to {mean + wide:+.4f}",
                f"{min(change):+.4f}",
            )
            rows.append([f"`{name}`", title, *texts])
    about = f"""## What codings cost

Credit default as above, {_seeds(found["utility"])}: AUC less that of another training of the same seed.
"""
    heads = ("coding", "less", "mean", "standard deviation", "95 % interval of the mean", "least")
    return f"{about}\n{markdown_table(heads, rows)}"


def _heads(found: Figures) -> str:
    """Return the table of the heads of ``adversarial``."""
    rows = []
    for job, size in (("heads", "13,500"), ("heads, fewer rows", "6,048")):
        for name, figures in found[job].items():
            if name != "none":
                rows.append(
                    [size, f"`{name}`", *(range_cell(figures.get(each)) for each in ("spectral, either", "AUC"))]
                )
    about = f"""## Heads of adversarial training

The paper describes no heads. Here they have one hidden layer of 64 and a learning rate of .01; other rates and widths,
behind `"logitboost"` ({_seeds(found["heads"])}), and another number of aligned rows
({_seeds(found["heads, fewer rows"])}): the figures that were expected came from a sample of 15,000 rows.
"""
    return f"{about}\n{markdown_table(('aligned rows', 'heads', 'spectral', 'AUC'), rows)}"


def _gradients(found: Figures) -> str:
    """Return the table of attacks on returned gradients."""
    job = found.get("gradients", {})
    if not job:
        return ""
    names = ("direct, auc", "direct, together, auc", "gradient-modes 3 epochs, either")
    words = {"distance-correlation": "`distance-correlation`, weight 1", "none": "labels"}
    rows = [
        [
            words.get(name, f"`{name}`"),
            *(range_cell({s: max(v, 1 - v) for s, v in figures.get(key, {}).items()}) for key in names),
        ]
        for name, figures in job.items()
    ]
    about = f"""## More attacks on returned gradients

{_seeds(job)}, the same set-up with three epochs. *Sign* reads the first epoch, alone and with the views of all six
parties together; `gradient-modes` reads three epochs. What `adversarial` and `distance-correlation` hide of the sign,
the gap between the classes still shows.
"""
    return f"{about}\n{markdown_table(('defense', 'sign', 'sign, six parties', '`gradient-modes`'), rows)}"


def _columns(found: Figures) -> str:
    """Return the table of the active party's columns."""
    counts = [count for count in (0, 1, 3, 6) if f"columns {count}" in found]
    if not counts:
        return ""
    jobs = {count: found[f"columns {count}"] for count in counts} | {11: found["codings"]}
    common = set.intersection(*(set(job["none" if not count else "offset"]["AUC"]) for count, job in jobs.items()))

    def kept(figures: Mapping[str, Series], name: str) -> Series:
        return {seed: value for seed, value in figures[name].items() if seed in common}

    rows = []
    for count, job in jobs.items():
        coded = job["offset" if count else "none"]
        rows.append([str(count), *(range_cell(kept(coded, name)) for name in ("spectral, either", "AUC"))])
    first, last = (mean_of(kept(job, "spectral, either")) for job in (jobs[0]["none"], jobs[11]["offset"]))
    about = f"""## Columns of the active party

{len(common)} seeds, `"offset"`; without columns nothing is coded, and the network is fitted to the labels. From none to
11 columns the spectral attack loses {first - last:.3f}.
"""
    return f"{about}\n{markdown_table(('columns', 'spectral', 'AUC'), rows)}"


def _criteo(found: Figures) -> str:
    """Return the table of the Criteo sample."""
    job = found.get("criteo", {})
    if not job:
        return ""
    names = ("spectral, either", "spectral, test rows", "norm, either", "norm, test rows", "AUC")
    words = {"none": "labels, own columns left out", "labels, joined": "the same, joined by logistic regression"}
    rows = [
        [words.get(name, f"`{name}`"), *(range_cell(figures.get(each)) for each in names)]
        for name, figures in job.items()
    ]

    def lowered(figure: str) -> str:
        base, coded = (mean_of(job[name][figure]) for name in ("none", "logitboost"))
        return f"{base:.3f} to {coded:.3f}"

    about = f"""## The Criteo sample

{_seeds(job)}; seven parties, DeepFM, Adam, .001, batches of 256, five epochs. 2,880 training rows are aligned and 2,880
the active party's alone; 640 validation and 1,600 test rows. `"logitboost"` takes the spectral attack from
{lowered("spectral, either")} on training rows and from {lowered("spectral, test rows")} on test rows.
"""
    return f"{about}\n{markdown_table(('fitted to', 'spectral', 'test rows', 'norm', 'test rows', 'AUC'), rows)}"


def _bank(found: Figures) -> str:
    """Return the table of inversion."""
    jobs = {width: found[f"width {width}"]["none"] for width in (1, 4, 32) if f"width {width}" in found}
    if not jobs:
        return ""
    rows = [[str(width), range_cell(job["inversion, auc"])] for width, job in jobs.items()]
    about = f"""## A column of another party

{len(next(iter(jobs.values()))["AUC"])} seeds: `inversion` of `housing` on bank marketing, four parties, a linear top
model, 1,000 known rows. The paper has .534 at one number and .928 at 32, of another column.
"""
    return f"{about}\n{markdown_table(('numbers of an embedding', 'AUC'), rows)}"
