"""Evidence about epsilon from stored guesses and views: the observational audit of a view in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from labelward import rng
from labelward.attacks.base import Attack, AttackerData, LabelGuess
from labelward.attacks.instance_spaces import observed_leaves
from labelward.data import read_table
from labelward.data.encoding import fit_encoding, transform_splits
from labelward.data.labels import encode_labels
from labelward.data.tables import row_ids
from labelward.errors import DataError
from labelward.leakage.label_model import Floats, Labels, fit_label_model
from labelward.leakage.observational_audit import count_contradictions, epsilon_evidence
from labelward.leakage.stored_columns import rows_by_id
from labelward.leakage.stored_guesses import attack_of_guess, guessed_rows, named_truth, read_guess
from labelward.leakage.stored_views import run_rows
from labelward.metrics.epsilon_bound import EpsilonEvidence
from labelward.party.joined_view import SEPARATOR
from labelward.party.view import View


def stored_evidence(
    guess: Path,
    truth: Path,
    columns: Sequence[Path],
    views: Sequence[Path] = (),
    *,
    label: str = "label",
    id_column: str | None = None,
    delta: float = 0.0,
) -> EpsilonEvidence:
    """Return what a stored guess of classes, and the views that it was made from, show about epsilon.

    Args:
        guess: file of :func:`labelward.leakage.stored_guesses.write_guess`.
        truth: table of labels, as for :func:`labelward.leakage.stored_guesses.score_guess`.
        columns: tables with the columns of all parties; none: pairs are not guessed.
        views: folder of the attacked view, and of its party's views of other runs that the attack read. They add the
            visible leaves of trees; for an attack on the choice of test rows it is examined whether they exclude
            labels, for which the truth must have all rows of the run.
        label: label column of the truth.
        id_column: column of row ids in all tables; by default ``id``, otherwise row numbers from 0.
        delta: of the hypothesis.

    Raises:
        FileFormatError: the guess or a view cannot be read.
        DataError: a table cannot be used, or lacks a row of the guess, or rows of the run.
    """
    stored, place = read_guess(guess), f"table {str(truth)!r}"
    table = read_table(truth, text=[id_column or "id"])
    classes, numbers = encode_labels(table, label, place, quantities="leave out --columns and --view")
    labels = named_truth(stored, numbers, classes, place)
    draws = rng.learning(int(stored.about.get("seed", 0)), "", 0, "observational audit")
    attack, opened = attack_of_guess(stored), [View.load(each) for each in views]
    for folder, each in zip(views, opened, strict=True):
        guesser = str(stored.about.get("party", each.party))
        if each.party not in guesser.split(SEPARATOR):
            reason = f"is a view of {each.party!r}, and the guess is of {guesser!r}"
            raise DataError(reason, code="other-run", field=str(folder), value=each.party)
    found = EpsilonEvidence(rows=0, pairs=0, trials=(), delta=delta)
    count = int(labels.max()) + 1
    if columns:
        played = labels[guessed_rows(stored, table, id_column, place)]
        known = None if stored.known is None else np.flatnonzero(stored.known)
        numbers_of = [_numbers(each, stored.ids, id_column) for each in columns]
        model = fit_label_model(np.hstack(numbers_of), played, count, rng=draws)
        made = LabelGuess(values=stored.values, scores=stored.scores)
        leaves = observed_leaves(opened[0]) if opened and attack is not None and attack.reads_trees else None
        if leaves is not None and leaves.shape[1] != len(played):
            raise DataError("the view is of other rows than the guess", code="rows", value=leaves.shape[1])
        found = epsilon_evidence(made, None, played, model, known=known, leaves=leaves, delta=delta, rng=draws)
    if opened and attack is not None and type(attack).follows_from is not Attack.follows_from:
        view, *others = opened
        own = AttackerData(features=np.empty((view.rows, 0)), columns=(), other_runs=tuple(others))
        ordered = labels[_run_order(view, row_ids(table, id_column, place), place)]
        changed, contradicted = count_contradictions(attack, view, own, ordered, count, rng=draws)
        found = msgspec.structs.replace(found, changed=changed, contradicted=contradicted)
    return found


def _numbers(path: Path, ids: Sequence[str], id_column: str | None) -> Floats:
    """Return the columns of a table as numbers without gaps, in the order of the ids."""
    place = f"table {str(path)!r}"
    table = read_table(path, text=[id_column or "id"])
    table = table.take(pa.array(rows_by_id(row_ids(table, id_column, place), ids, place)))
    names = [name for name in table.column_names if name != (id_column or "id")]
    known = fit_encoding(table, names, place)
    (values,) = transform_splits(table, known, place, [np.arange(table.num_rows)])
    categories = {name: len(each) for name, each in known.categories.items()}
    return AttackerData(features=values, columns=known.names, categories=categories).numbers()


def _run_order(view: View, ids: Sequence[str], place: str) -> Labels:
    """Return the order of all rows that the parties of a view share."""
    _, order = run_rows(view, ids)
    if order is None:
        raise DataError(
            f"the rows are not those of the run of view {view.party!r}; give the training, validation and test rows",
            code="rows",
            field=place,
            value=len(ids),
        )
    return order
