"""The functions of ``import labelward`` that simulate, train, predict and attack; all parties run in this process.

``train``, ``predict`` and ``attack`` are the commands of these names: the same defaults, files and errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, ColumnGuess, LabelGuess
from labelward.attacks.instance_spaces import observed_leaves
from labelward.data import load_dataset, load_tables
from labelward.errors import DataError, InputError
from labelward.federation.components import check_job, job_engine, model_family, with_defaults
from labelward.federation.leakage_monitor import monitored_chains
from labelward.federation.model import FederatedModel
from labelward.federation.model_shares import default_seed
from labelward.federation.predict import predict_table
from labelward.federation.progress import Watch, no_log
from labelward.federation.simulation import SimulationResult, simulate_job
from labelward.federation.train import TrainedModel, defense_variant, train_variant
from labelward.job import Job, as_job
from labelward.leakage.label_model import fit_label_model
from labelward.leakage.observational_audit import epsilon_evidence
from labelward.leakage.stored_views import AttackerKnowledge, attack_view, load_models
from labelward.parameters import (
    NonNegativeInt,
    PositiveInt,
    Seed,
    StrPath,
    as_path,
    as_paths,
    check_instance,
    check_value,
)
from labelward.party.context import no_progress
from labelward.party.view import View
from labelward.planning.cost_model import forecast
from labelward.protocols.family import PredictMode
from labelward.rng import learning
from labelward.runs.private_seeds import resolve_seeds


def simulate(job: Job, *, seed: int | None = None, defense: str | None = None) -> SimulationResult:
    """Train one model of a job in memory, and return margins of the test rows, views, shares and costs.

    Nothing is written, and nothing is attacked: :func:`labelward.audit` does both.

    Args:
        job: its attacks play no part.
        seed: of the learning draws; None: the job's first.
        defense: slug of one of the job's variants, as :func:`train` takes it; None: the only one.

    Raises:
        InputError: of any kind, before training begins.
        PolicyError: the defense does not fit model or data.

    Example:
        >>> job = labelward.load_job("job.toml")  # doctest: +SKIP
        >>> labelward.simulate(job).views["telco"].counts()  # doctest: +SKIP
    """
    seed = as_job(job).run.seeds[0] if seed is None else seed
    job = with_defaults(replace(job, attacks=(), run=replace(job.run, seeds=(seed,))))
    check_job(job)
    variant = defense_variant(job, defense)
    private = resolve_seeds([party.name for party in job.parties])
    data = load_dataset(job, seed, load_tables(job), private=private)
    model_family(job.model).check(data, monitored_chains(job, data, variant, seed=seed))
    with closing(job_engine(job)) as engine:
        return simulate_job(job, data, variant, engine, None, seed=seed, progress=no_progress)


def train(
    job: Job,
    out: StrPath,
    *,
    seed: int | None = None,
    defense: str | None = None,
    earlier: StrPath | None = None,
    repeat: Sequence[StrPath] = (),
    force: bool = False,
    watch: Watch = no_log,
) -> TrainedModel:
    """Train one model of a job, and write each party's view and model share to a folder.

    Args:
        job: its attacks play no part.
        out: a new folder; with ``force``, it may hold an earlier training, which is replaced.
        seed: of the learning draws; None: the job's first, or that of the model that is continued.
        defense: slug of one of the job's variants, such as ``"id-lmid-xi-0.1"`` or ``"none"``; None: the only one.
        earlier: folder of a training of the same parties, columns and rows, to whose model the job's trees are added.
        repeat: folders of earlier runs whose private draws, such as which rows are tested on, are repeated.
        force: replace an earlier training in the folder.
        watch: is called with the progress.

    Raises:
        InputError: of any kind, before anything is written.
        PolicyError: the defense does not fit model or data.

    Example:
        >>> model = labelward.train(labelward.load_job("job.toml"), "model")  # doctest: +SKIP
        >>> model.utility, model.cost.bytes  # doctest: +SKIP
    """
    begun = None if earlier is None else as_path("earlier", earlier)
    return train_variant(
        as_job(job),
        as_path("out", out),
        seed=default_seed(job, begun) if seed is None else seed,
        variant=defense,
        force=force,
        watch=watch,
        earlier=begun,
        repeat=as_paths("repeat", repeat),
        forecast=forecast,
    )


def predict(
    run: StrPath, tables: StrPath | Mapping[str, StrPath], out: StrPath, *, mode: PredictMode = "one-round"
) -> int:
    """Predict the rows of new tables with the shares of all parties; write a Parquet file, return the number of rows.

    The file has the columns ``id``, ``prediction``, and margins and probabilities where the model has them. For arrays
    in memory, and for explanations, use :class:`labelward.FederatedModel`.

    Args:
        run: a folder that :func:`train` wrote.
        tables: one table with the columns of all parties, or each party's own by name.
        out: the file to write; readable by its owner only.
        mode: ``"levels"`` shows less to the active party and more to passive parties; predictions are the same.

    Raises:
        FileFormatError: a share is missing, damaged, or of another party or model.
        DataError: a table cannot be used, lacks a column, or the parties' rows differ.

    Example:
        >>> labelward.predict("model", "new.csv", "predictions.parquet")  # doctest: +SKIP
        569
    """
    folder = as_path("run", run)
    if not isinstance(tables, Mapping):
        tables = dict.fromkeys(FederatedModel.load(folder).parties, tables)
    own = {party: as_path("tables", table) for party, table in tables.items()}
    return predict_table(folder, own, as_path("out", out), mode=mode)


def attack(
    view: StrPath,
    features: StrPath,
    kind: str,
    *,
    classes: int,
    seed: int,
    parameters: Mapping[str, Any] | None = None,
    id_column: str | None = None,
    known: StrPath | None = None,
    label: str = "label",
    other_views: Sequence[StrPath] = (),
    labels: StrPath | None = None,
    colluding: Mapping[StrPath, StrPath] | None = None,
    attribute: StrPath | None = None,
) -> tuple[tuple[str, ...], LabelGuess | ColumnGuess]:
    """Attack a stored view as its party could: with the view, its own columns and model, and stated knowledge.

    With the seed of the run and the audit's parameters, the guess is that of the audit.

    Args:
        view: folder of a view, such as ``audit/runs/none/1/telco/view``; the party's model share is read beside it.
        features: table of the party's own columns of the training rows.
        kind: of the attack; ``labelward list attacks`` prints all kinds with their parameters.
        classes: number of classes that the attacker assumes; for quantities, number of bins.
        seed: of the attack's random draws.
        parameters: of the attack, by name.
        id_column: column of row ids in the tables; None: ``id`` if there is one.
        known: table of row ids and labels of the rows whose labels the attacker was told.
        label: label column of ``known`` and ``labels``.
        other_views: the same party's views of other runs on the same rows.
        labels: table of row ids and labels of the training rows, for a view of the active party, which holds them.
        colluding: further passive parties of the run that attack together with this one: their own columns by the
            folder of their view.
        attribute: table of row ids and known values of the attribute that ``"attribute-inference"`` infers.

    Returns:
        Row ids, and for each the guessed cluster or label; or the guessed columns of other parties.

    Raises:
        FileFormatError: the view is damaged, or truncated.
        DataError: a table cannot be used, or its columns or rows are not those of the view.
        JobError: an unknown attack or parameter, or an attack that lacks what it needs.

    Example:
        >>> folder, own = "audit/runs/none/1/telco/view", "audit/data/1/telco.parquet"  # doctest: +SKIP
        >>> ids, guess = labelward.attack(folder, own, "id2graph", classes=2, seed=1)  # doctest: +SKIP
    """
    check_value("classes", classes, PositiveInt)
    check_value("seed", seed, Seed)
    check_instance("parameters", parameters or {}, Mapping, "by name")
    folder, own = as_path("view", view), as_path("features", features)
    others = ((as_path("colluding", each), as_path("colluding", table)) for each, table in (colluding or {}).items())
    knowledge = AttackerKnowledge(
        known=None if known is None else as_path("known", known),
        attribute=None if attribute is None else as_path("attribute", attribute),
        labels=None if labels is None else as_path("labels", labels),
        label=label,
        other_runs=as_paths("other_views", other_views),
        models=load_models(folder),
        colluding=tuple(others),
    )
    return attack_view(
        folder, own, kind, parameters or {}, classes=classes, seed=seed, id_column=id_column, knowledge=knowledge
    )


def measure_epsilon(
    guess: LabelGuess,
    labels: NDArray[Any],
    columns: Any,
    *,
    without_view: LabelGuess | None = None,
    view: View | None = None,
    known_rows: Sequence[int] = (),
    delta: float = 0.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> float:
    """Return a lower bound of the epsilon of label differential privacy, from one guess of an attack on one view.

    It says nothing about how large epsilon is, and rests on a model of the labels:
    ``docs/explanation-measured-privacy.md``.

    Args:
        guess: clusters or classes; classes are numbered in the order of the sorted labels.
        labels: [rows], the true classes.
        columns: [rows, columns], the columns of all parties as numbers, NaN if missing.
        without_view: guess of the same attack on ``view.without_records()``, which the bound then discounts.
        view: whose leaves of trees are further evidence; its rows must be those of the guess.
        known_rows: positions of rows whose labels the attack was told.
        delta: of (epsilon, delta)-label differential privacy.
        confidence: of the bound.
        seed: of counterfactual labels.

    Raises:
        DataError: numbers of rows differ, or there are none; labels are missing, or columns are no finite numbers.
        InputError: an argument is of another class, or out of range.

    Example:
        >>> labelward.measure_epsilon(guess, y, X)  # doctest: +SKIP
    """
    check_value("delta", delta, Annotated[float, Meta(ge=0, lt=1)])
    check_value("confidence", confidence, Annotated[float, Meta(gt=0, lt=1)])
    check_value("seed", seed, Seed)
    check_instance("guess", guess, LabelGuess, "of labelward.attack")
    check_instance("without_view", without_view or guess, LabelGuess, "of labelward.attack")
    if view is not None:
        check_instance("view", view, View, "of labelward.View.load")
    numbers, labels = _numbers(columns), _labels(labels)
    blind = guess if without_view is None else without_view
    rows = (len(guess.values), len(labels), len(numbers), len(labels) if view is None else view.rows, len(blind.values))
    if len(set(rows)) > 1 or not rows[0]:
        reason = (
            f"there are {rows[0]} guesses, {rows[1]} labels, {rows[2]} rows of columns, {rows[3]} of the view and "
            f"{rows[4]} guesses without it; give as many of each"
        )
        raise DataError(reason, code="rows", value=rows)
    for row in np.asarray(known_rows).tolist():
        check_value("known_rows", row, NonNegativeInt)
        if row >= len(labels):
            reason = f"must be below {len(labels)}, the number of rows, not {row}"
            raise InputError(reason, code="range", field="known_rows", value=row)
    names, truth = np.unique(labels, return_inverse=True)
    filled = AttackerData(features=numbers, columns=[str(number) for number in range(numbers.shape[1])]).numbers()
    draws = learning(seed, "", 0, "observational audit")
    model = fit_label_model(filled, truth.astype(np.int64), len(names), rng=draws)
    known = np.asarray(known_rows, np.int64)
    leaves = None if view is None else observed_leaves(view)
    found = epsilon_evidence(guess, without_view, truth, model, known=known, leaves=leaves, delta=delta, rng=draws)
    return found.bound(confidence=confidence)


def _numbers(columns: Any) -> NDArray[np.float64]:
    """Return columns as an array; :class:`DataError` where they are no table of numbers."""
    try:
        numbers = np.asarray(columns, np.float64)
    except (TypeError, ValueError) as error:
        reason = f"must be numbers, NaN where one is missing ({error})"
        raise DataError(reason, code="values", field="columns") from error
    if numbers.ndim != 2:
        reason = f"must have two dimensions, rows and columns, not {numbers.ndim}"
        raise DataError(reason, code="columns", field="columns", value=numbers.shape)
    if np.isinf(numbers).any():
        raise DataError("must be finite, or NaN where one is missing", code="values", field="columns")
    return numbers


def _labels(labels: Any) -> NDArray[Any]:
    """Return labels as an array; :class:`DataError` where they are no list, or one is missing."""
    found = np.asarray(labels)
    if found.ndim != 1:
        reason = f"must have one dimension, the rows, not {found.ndim}"
        raise DataError(reason, code="labels", field="labels", value=found.shape)
    missing = [row for row, label in enumerate(found.tolist()) if label is None or label != label]
    if missing:
        reason = f"row {missing[0]}, counting from 0, has none; leave out rows without a label"
        raise DataError(reason, code="labels", field="labels", value=missing[0])
    return found
