"""Schema of an audit's stored results, as read by the command line, the report and other programs.

``DIR/results.jsonl`` holds one :class:`ResultRow` a line, ``DIR/runs/<defense>/<seed>/run.json`` one
:class:`RunDetails` with further data for the report. Both have a format version and are checked against
their schema when read. A row is appended with one write and flushed to disk; a last line without newline
comes from a killed process and is ignored.

A model, a defense or an attack is stored as in the completed job (``ComponentSpec.as_dict()``, ``Variant.as_list()``):
an object with ``kind`` and all parameters; a parameter without value is null.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from labelward.attacks.base import Attack
from labelward.errors import FileFormatError, InputError, JobError, OutputError
from labelward.job.components import ComponentSpec, Variant
from labelward.party.json_file import decode_versioned, read_versioned
from labelward.policy.base import BudgetScope
from labelward.runs.checks import Metrics, check_baselines, check_finite, check_metrics, check_nested
from labelward.runs.estimate import Estimate
from labelward.runs.malicious_runs import MaliciousRun
from labelward.runs.secure_files import append_line, write_bytes, write_lines
from labelward.runs.short_names import budget_scopes, variant_without_defaults, without_defaults

FORMAT = 1
RESULTS_FILE = "results.jsonl"
RUN_FILE = "run.json"
_FURTHER = ("beside", "target", "epsilon", "advantage")
"""Objects in ``leakage`` that are no metrics of the attack."""

Configured = dict[str, Any]
"""A model, defense or attack: ``kind`` and its parameters in one object."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The encryption of a run; ``bits`` and ``security_level`` (bits) are 0 if nothing is encrypted."""

    name: str
    bits: int
    insecure: bool
    security_level: int


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cost of one training, over all parties.

    Attributes:
        seconds: wall time of the training, without attacks and scoring.
        bytes: size on the wire, in both directions.
        logical_sums: encrypted sums that a protocol without packing would have sent.
        logical_rows: numbers that it would have encrypted for rows; 0 in results of earlier versions.
    """

    seconds: float
    bytes: int
    messages: int
    encryptions: int = 0
    additions: int = 0
    decryptions: int = 0
    ciphertexts: int = 0
    logical_sums: int = 0
    logical_rows: int = 0


class ResultRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model × defense × attack × attacker × seed.

    Attributes:
        dataset: name in reports.
        defense: the chain of defenses; empty for the undefended run.
        party: the attacker, or the names of a coalition (``telco+shop``); None where the job has no attack.
        behavior: deviating behavior of the attacker's party, if any: ``kind`` and parameters. Utility and cost are
            then those of the malicious run.
        leakage: metric values by name, with ``chance`` and ``without_view`` (objects with the same names) and
            ``primary`` (the name of the metric that ranks); None if ``attack`` is. If present, ``beside`` contains
            baselines by name, each an object of metrics; ``target`` is ``"columns"`` for an attack on columns of other
            parties, absent for one on labels; ``epsilon`` evidence about it
            (:class:`~labelward.metrics.epsilon_bound.EpsilonEvidence`) with its ``bound`` at 95% confidence, null if no
            finite one covers the view; ``advantage`` the reconstruction advantage
            (:class:`~labelward.metrics.reconstruction.ReconstructionAdvantage`).
        utility: metric values by name on the test rows, with ``alone`` and ``joined`` (objects with the same names) and
            ``primary`` (the name of the metric that ranks).
        coalition: the parties that put their views together; absent for a single attacker.
        budgets: by defense and parameter, what each budget of the chain covers and excludes; absent without any.
        versions: versions of labelward, Python and the relevant libraries.
    """

    format: Literal[1] = 1
    dataset: str
    model: Configured
    engine: EngineInfo
    seed: int
    defense: tuple[Configured, ...]
    party: str | None
    attack: Configured | None
    leakage: Metrics | None
    utility: Metrics
    cost: Cost
    versions: dict[str, str]
    behavior: Configured | None = None
    budgets: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    coalition: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    def key(self) -> str:
        """Return the identity of the row as canonical JSON: all fields except results and versions."""
        identity = [self.dataset, self.model, self.engine, self.seed, self.defense, self.party, self.attack]
        return msgspec.json.encode(identity, order="deterministic").decode()

    def check(self) -> None:
        """Raise :class:`ValueError` if the row violates the schema (missing or unnamed metrics, NaN, infinity)."""
        for entry in (self.model, *self.defense, *([] if self.attack is None else [self.attack])):
            try:
                ComponentSpec.of(entry)
            except (KeyError, JobError) as error:
                raise ValueError(f"no model, defense or attack: {entry} ({error})") from error
        if (self.attack is None) != (self.leakage is None):
            raise ValueError("attack and leakage must both be given or both be null")
        if self.attack is not None and self.party is None:
            raise ValueError("an attack has no attacking party")
        if self.leakage is not None:
            known = {name: value for name, value in self.leakage.items() if name not in _FURTHER}
            check_metrics("leakage", known, ("chance", "without_view"))
            check_baselines(self.leakage.get("beside", {}))
            for name in ("epsilon", "advantage"):
                check_nested(f"leakage.{name}", self.leakage.get(name, {}))
        check_metrics("utility", self.utility, ("alone", "joined"), may_be_empty=True)
        check_finite("cost.seconds", self.cost.seconds)


class WireFlow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All messages of one type from one party to another.

    Attributes:
        readable: content readable by the receiver: True for all, False for none (ciphertexts only), or a description.
    """

    sender: str
    receiver: str
    type: str
    messages: int
    bytes: int
    readable: bool | str


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key of a run.

    Attributes:
        fingerprint: fingerprint of the public key, as hex.
        insecure: reasons why the run is insecure.
        kernel: arithmetic backend.
        chosen: why ``engine = "auto"`` became this engine, and what the other one would cost; empty where the job names
            its engine.
    """

    engine: str
    bits: int
    security_level: int
    fingerprint: str
    insecure: tuple[str, ...]
    kernel: str
    chosen: str = ""


class VisibilityCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Information visible to one party, in nats, about the labels of the training rows.

    Attributes:
        rows: training rows.
        columns: the party's own columns.
        trees: trees in which the party participated.
        nodes: nodes whose rows it knows.
        leaves: finest instance spaces that it knows, over all trees.
        own_splits: splits that it owns.
        told_splits: splits of others whose rows were disclosed to it.
        decrypted_sums: sums that it decrypted.
        epochs: epochs of a split network.
        numbers: values in the embeddings or gradients of training rows that it received.
        max_node_information: largest mutual information of a single known node with the labels.
        max_node_bound: largest value of the bound of ID-LMID (Equation 6) over these nodes.
        joint_information: mutual information of all its instance spaces jointly with the labels.
        joint_bound: bound for everything disclosed, jointly.
        label_entropy: entropy of the labels, the maximum that can be learned.
    """

    role: str
    rows: int
    columns: int = 0
    trees: int = 0
    nodes: int = 0
    leaves: int = 0
    own_splits: int = 0
    told_splits: int = 0
    decrypted_sums: int = 0
    epochs: int = 0
    numbers: int = 0
    max_node_information: float | None = None
    max_node_bound: float | None = None
    joint_information: float | None = None
    joint_bound: float | None = None
    label_entropy: float | None = None


class AttackAccount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One attack by one party: auxiliary knowledge beyond view and own columns, and the notes of the attack."""

    party: str
    attack: Configured
    auxiliary: dict[str, Any]
    notes: dict[str, float] = {}
    seconds: float = 0.0


class MeterReading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leakage of one party's instance spaces after a number of trees; information in nats.

    Attributes:
        v_measure, communities: V-measure and mutual information of the communities with the labels.
        groups: mutual information of the groups of rows that no tree separates.
    """

    trees: int
    v_measure: float
    communities: float
    groups: float


class RunDetails(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Data of one run that the report needs in addition to the result rows.

    Attributes:
        phases: seconds by party and phase.
        seen: visible information by party.
        applied: each policy's account: ``kind``, parameters and tallies in one object, and ``party`` for a policy of a
            passive party.
        processor: processor of the machine or machines.
        duration: seconds of the training.
        test_rows: number of rows on which the utility was measured.
        meter: readings of the leakage meter, by passive party.
        deviation: in a malicious run, the deviating ``party`` with ``kind`` and parameters of its behavior.
        estimate: estimated cost of a tree model; its phases are named as in ``phases``.
    """

    format: Literal[1] = 1
    seed: int
    defense: tuple[Configured, ...]
    wire: tuple[WireFlow, ...]
    phases: dict[str, dict[str, float]]
    key: KeyInfo
    seen: dict[str, VisibilityCounts]
    applied: tuple[dict[str, Any], ...]
    processor: str
    duration: float
    test_rows: int = 0
    attacks: tuple[AttackAccount, ...] = ()
    meter: dict[str, tuple[MeterReading, ...]] = {}
    deviation: Configured | None = None
    estimate: Estimate | None = None


def append_row(folder: Path, row: ResultRow) -> None:
    """Append a row to the folder's results, in one flushed write; an incomplete last line is dropped first.

    Raises:
        ValueError: the row violates the schema (see :meth:`ResultRow.check`).
        OutputError: the file cannot be written.
    """
    row.check()
    append_line(folder / RESULTS_FILE, row)


def replace_rows(folder: Path, keys: Collection[str], rows: Sequence[ResultRow]) -> None:
    """Replace the rows of these keys, as far as they are stored, by others, in one step.

    Raises:
        ValueError: a row violates the schema.
        OutputError: the file cannot be written.
    """
    for row in rows:
        row.check()
    kept = [row for row in read_rows(folder) if row.key() not in keys]
    write_lines(folder / RESULTS_FILE, (*kept, *rows))


def read_rows(folder: Path) -> list[ResultRow]:
    """Return the folder's rows in the order of writing, without an incomplete last line; empty if there is no file.

    Rows of attacks that a development version had not settled (:meth:`~labelward.attacks.base.Attack.settled`) are
    settled; of rows that are then of the same key, the last one counts.

    Raises:
        FileFormatError: a line is damaged, of another format version, or repeats a row; the message has its number.
    """
    rows: list[ResultRow] = []
    first: dict[str, int] = {}
    path = folder / RESULTS_FILE
    for number, line in enumerate(_read(path).split(b"\n")[:-1] if path.exists() else [], start=1):
        where = f"{path}, line {number}"
        row = decode_versioned(line, ResultRow, FORMAT, field=where)
        try:
            row.check()
        except ValueError as error:
            raise FileFormatError(str(error), code="damaged", field=where) from error
        earlier = first.setdefault(row.key(), number)
        if earlier != number:
            raise FileFormatError(f"repeats line {earlier}", code="damaged", field=where, value=earlier)
        rows.append(_settled(row))
    return list({row.key(): row for row in rows}.values())


def has_cut_off_row(folder: Path) -> bool:
    """Return whether the last row is incomplete: the process was killed while writing, and the run is unfinished."""
    path = folder / RESULTS_FILE
    return path.exists() and not (_read(path) or b"\n").endswith(b"\n")


def write_run(folder: Path, run: RunDetails) -> Path:
    """Write ``run.json`` of a run into its :func:`run_folder`, replacing it in one step; return its path.

    Raises:
        OutputError: the file cannot be written.
    """
    target = run_folder(folder, run.defense, run.seed, _slug(run.deviation)) / RUN_FILE
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, msgspec.json.format(msgspec.json.encode(run)) + b"\n")
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror}", code="unwritable", value=str(target)) from error
    return target


def read_run(folder: Path, defense: Sequence[Mapping[str, Any]], seed: int, deviation: str = "") -> RunDetails | None:
    """Return the details of a run, or None if it did not finish; ``deviation`` as for :func:`run_folder`.

    Raises:
        FileFormatError: ``run.json`` is damaged or of another format version.
    """
    path = run_folder(folder, defense, seed, deviation) / RUN_FILE
    return read_versioned(path, RunDetails, FORMAT) if path.exists() else None


def run_folder(folder: Path, defense: Sequence[Mapping[str, Any]], seed: int, deviation: str = "") -> Path:
    """Return the folder of a run's views, models and details; ``deviation``: its slug, empty for the honest run."""
    return folder / "runs" / _variant(defense).slug / (f"{seed}-{deviation}" if deviation else str(seed))


def kind_label(entry: Mapping[str, Any]) -> str:
    """Return a readable name of a stored defense or attack, without defaults: ``id2graph (eta 0.5)``."""
    return without_defaults(ComponentSpec.of(entry)).label


def defense_label(defense: Sequence[Mapping[str, Any]]) -> str:
    """Return a readable name of a stored chain of defenses; ``no defense`` for the undefended run."""
    return _variant(defense).label


def budgets(defense: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, Any, BudgetScope]]:
    """Return kind, parameter, value and scope of each budget in a stored chain of defenses."""
    return [
        (spec.kind, name, spec.params[name], scope)
        for spec in map(ComponentSpec.of, defense)
        for name, scope in budget_scopes(spec).items()
        if spec.params.get(name) is not None
    ]


def hides_labels(defense: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a stored chain of defenses replaces labels by noisy ones, with an epsilon for each."""
    return any(scope.private == "labels" for *_, scope in budgets(defense))


def budget_texts(defense: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what each budget covers and excludes: ``{"lp-mst epsilon": "1 per training label; excludes ..."}``."""
    return {
        f"{kind} {name}": f"{value:g} {scope.covers}; excludes {scope.excludes}"
        for kind, name, value, scope in budgets(defense)
    }


def _variant(defense: Sequence[Mapping[str, Any]]) -> Variant:
    return variant_without_defaults(Variant(tuple(map(ComponentSpec.of, defense))))


def _slug(deviation: Mapping[str, Any] | None) -> str:
    if deviation is None:
        return ""
    return MaliciousRun.of(deviation["party"], {key: value for key, value in deviation.items() if key != "party"}).slug


def _settled(row: ResultRow) -> ResultRow:
    """Return a row whose attack leaves nothing to the model: what is decided changes attack and behavior, no more."""
    from labelward.attacks import ATTACKS

    if row.attack is None:
        return row
    stored = ComponentSpec.of(row.attack)
    cls = ATTACKS.classes().get(stored.kind, Attack)  # the base class for an extension that is not installed
    if cls.settled is Attack.settled:
        return row
    try:
        made = ATTACKS.make(stored.kind, stored.params)
    except InputError:  # parameters of another version
        return row
    settled = made.settled(row.model)
    before, after = made.parameters(), settled.parameters()
    decided = {name: after[name] for name in stored.params if after[name] != before[name]}
    if not decided:
        return row
    behavior = None if row.behavior is None else settled.behavior
    return msgspec.structs.replace(row, attack=row.attack | decided, behavior=behavior)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}", code="unreadable", value=str(path)) from error
