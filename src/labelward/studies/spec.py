"""Specification of a study: datasets, models, attacks, settings, and the tables and figures of a paper made of them.

A study runs one training for each *task*: a setting, a dataset, a model and a seed. Each task is an audit in a folder
of its own, with all defenses and attacks of its setting, so parts that have a setting in common share its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from labelward.data.column_partition import assign_columns
from labelward.errors import InputError, unknown_name
from labelward.job import (
    ComponentSpec,
    DataSection,
    EncryptionSection,
    Job,
    LeakageSection,
    PartySection,
    RunSection,
    TuneSection,
    Variant,
)
from labelward.studies.references import NO_DEFENSE, Claim, FigureKey, ReferenceFigure

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

ATTACKER = "telco"
"""Name of the attacker's party in every job of a study."""
ATTRIBUTE = "attribute"
"""In :attr:`MetricColumn.source`: a hidden attribute, inferred with the help of the inferred labels."""

PartForm = Literal[
    "grid", "rates", "curves", "trade-off", "information", "ablation", "fronts", "generations", "distributions"
]


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyDataset:
    """A dataset of a study.

    Attributes:
        image_width: width of the images whose pixels are the columns, row by row; the attacker gets their left part,
            or an image of its own where they are patches.
        patches: whether rows of the table that is made or converted are patches of patients, which are dealt to as
            many parties as a setting has.
        generate: makes the table of a seed, for datasets that are drawn anew for each seed or derived from another.
        party_columns: columns by party; empty: dealt out by share.
        fine_tuning: further parameters of those that fine-tune the bottom model.
        parties: number of parties to whom the columns are dealt out evenly; 0: as the setting says.
        shape: rows, columns without the label, and classes of the paper's dataset, which a file of the user's must
            have; 0: any number.
        file: the user's file that is read in place of the catalog.
        like: the dataset at hand that it is shown beside, where nothing is at hand of it.
        convert: makes the table that is trained on from the file's; None: it is that already.
        hidden_attribute: a column that no party has; whether a row is above its median is inferred in a second step.
    """

    name: str  # name in the catalog, or of a table that is generated
    title: str  # name in the paper
    substitute: str = ""  # how it differs from the paper's dataset; empty if it is the same
    active_share: float = 0.5  # the active party's share of the columns
    image_width: int = 0
    patches: bool = False
    reason: str = ""  # why its figures differ from the paper's, if known
    utility_metric: str = "auc"  # the paper's metric of utility
    leakage_metric: str = "accuracy"  # the paper's metric of leakage; replaces ``*`` in :attr:`MetricColumn.metric`
    extra_metrics: tuple[str, ...] = ()  # further metrics, each with rows of its own
    generate: Callable[[int], pa.Table] | None = None
    catalog_name: str = ""  # the table in the catalog that it is or is derived from, if it differs from ``name``
    party_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    test_size: float | None = None  # share of test rows; None: the study's
    model: Mapping[str, Any] = field(default_factory=dict)  # model parameters that differ from the study's
    completion: Mapping[str, Any] = field(default_factory=dict)  # parameters of model completion attacks
    fine_tuning: Mapping[str, Any] = field(default_factory=dict)
    upper_bound: bool = True  # whether the oracle upper bound is computed for columns that show it
    on_request: bool = False  # whether it runs only if it, or a part, is named
    parties: int = 0
    hidden_attribute: str = ""
    categories: Literal["native", "dummies", "hashed"] = "dummies"  # encoding of text columns
    shape: tuple[int, int, int] | None = None
    file: Path | None = None
    like: str = ""
    convert: Callable[[pa.Table], pa.Table] | None = None

    @property
    def label(self) -> str:
        """Its name, and what it stands for."""
        return f"{self.name}, a substitute for {self.title}" if self.substitute else self.name

    def metrics(self) -> tuple[tuple[str, str, str], ...]:
        """Return (dataset of the figure's key, utility metric, leakage metric): the paper's first, then the others."""
        extra = ((f"{self.name}, {metric}", metric, metric) for metric in self.extra_metrics)
        return (self.name, self.utility_metric, self.leakage_metric), *extra


@dataclass(frozen=True, kw_only=True)
class StudyModel:
    """A model that a study trains: its title on the page, and its configuration."""

    title: str
    spec: ComponentSpec
    encrypted: bool = False  # whether it is trained under Paillier, since its costs are shown
    search: TuneSection | None = None  # how its settings are searched; None: it is trained as it is


@dataclass(frozen=True, kw_only=True)
class MetricColumn:
    """A measure of leakage: an attack, and one of its metrics.

    Attributes:
        source: what is scored. ``""``: the attack's guess; ``"without view"``: the same attack without the view;
            ``"logistic"``, ``"boosted"``, ``"all labels"``, ``"majority"``: that baseline; ``"model"``: the utility of
            the attacked training, in the metric of utility; ``"utility"``: the same in ``metric``; :data:`ATTRIBUTE`:
            the hidden attribute, with ``metric`` naming model and inputs.
        of: whose attack it is: the attacker's, the mean over all passive parties, or the active party's.
    """

    title: str  # heading of the column
    attack: ComponentSpec  # its configuration, without what a dataset adds for model completions
    metric: str = "v_measure"  # metric of the leakage; ``*`` stands for the dataset's
    source: str = ""
    of: Literal["attacker", "passive", "active"] = "attacker"
    reason: str = ""  # why it differs from the paper on any dataset, if known
    reason_unless_judged: str = ""  # the same, where no reference figure has a tolerance


@dataclass(frozen=True, kw_only=True)
class DefenseSpec:
    """A defense under the name that the paper gives it."""

    family: str  # name without parameter
    chain: tuple[ComponentSpec, ...]  # configuration
    strength: float | None = None  # its parameter, if it has one

    @property
    def name(self) -> str:
        """Family and parameter: ``ID-LMID 0.5``."""
        return self.family if self.strength is None else f"{self.family} {self.strength:g}"


def defense_sweep(
    family: str, kind: str, parameter: str, values: Sequence[float], **fixed: Any
) -> tuple[DefenseSpec, ...]:
    """Return one defense of a kind for each value of its parameter."""
    return tuple(
        DefenseSpec(family=family, strength=each, chain=(ComponentSpec(kind, {parameter: each, **fixed}),))
        for each in values
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class StudySetting:
    """Configuration that some trainings have in common.

    Attributes:
        attacker_share: the attacker's share of the columns; None: what the active party's share leaves.
        defenses: by model, those that run besides the undefended training.
        active_columns: how many of its listed columns the active party keeps; None: all.
        overlap: how many other parties the attacker has a column of as well, or the patch.
        aligned: share of the training rows that all parties hold; None: all.
        record: what views of networks store, as in a job.
    """

    name: str  # name of its folder
    axis_value: float | None = None  # its place on the axis of a figure
    model: Mapping[str, Any] = field(default_factory=dict)  # model parameters that differ from the study's
    attacker_share: float | None = None
    partition: str = "random"  # how columns are dealt out, as in a job
    defenses: Mapping[str, tuple[DefenseSpec, ...]] = field(default_factory=dict)
    attacked: bool = True  # whether attacks run; otherwise only views are kept
    has_references: bool = False  # whether the reference figures were measured in this setting
    columns: tuple[str, ...] = ()  # titles of the columns that are measured; empty: all
    parties: int = 2  # number of parties; the attacker is the last one
    overlap: int = 0
    active_columns: int | None = None
    aligned: float | None = None
    record: Literal["full", "digests", "epochs"] = "full"


@dataclass(frozen=True, kw_only=True)
class StudyPart:
    """A table or a figure of a paper.

    Attributes:
        form: how it is shown. ``grid``: datasets and models by columns; ``rates``: encrypted sums by defense;
            ``curves``: columns over the settings' axis; ``trade-off``: utility and leakage by defense; ``information``:
            mutual information of leaves and labels by tree; ``ablation``: the first column, and differences to it;
            ``fronts``: points of searches in pairs of objectives; ``generations``: columns over a search;
            ``distributions``: of both classes' embeddings at each passive party, by defense.
    """

    name: str  # ``"table 2"``, ``"figure 5"``; any name in a study of no paper
    title: str  # what it shows
    form: PartForm
    settings: tuple[str, ...]  # their names, in the order of the axis; all forms but ``curves`` take one
    columns: tuple[str, ...] = ()  # titles of the columns
    axis: str = ""  # what the settings' values are; of fronts the objective beside utility, empty: all pairs
    about: str = ""  # explanation, with choices that the paper leaves open
    reason: str = ""  # why all of its figures differ from the paper's, if they do
    defenses: tuple[str, ...] = ()  # families that it shows; empty: all
    models: tuple[str, ...] = ()  # names that it shows; empty: all
    datasets: tuple[str, ...] = ()  # names that it shows; empty: all
    parties: tuple[str, ...] = ()  # names of the passive parties that ``distributions`` shows; empty: all
    rankings: tuple[tuple[str, ...], ...] = ()  # groups of columns; the page names the best column of each group
    baseline: str = ""  # title of the column that a trade-off plot draws as a horizontal line
    on_request: bool = False  # whether it runs only if it is named
    appendix: bool = False  # whether the option ``--appendix`` names it


@dataclass(frozen=True, kw_only=True)
class StudyTask:
    """One audit of a study, or one search, with one seed."""

    setting: StudySetting
    dataset: StudyDataset
    model: str
    seed: int

    @property
    def defense_names(self) -> list[str]:
        """Names of what its job's variants are trained under, in their order; the first one is undefended."""
        return [NO_DEFENSE, *(each.name for each in self.setting.defenses.get(self.model, ()))]

    @property
    def path(self) -> str:
        """Its folder below that of the study."""
        return f"{self.setting.name}/{self.dataset.name}/{self.model}/{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Study:
    """The tables and figures of a paper.

    Attributes:
        unavailable: titles, by name, of the paper's datasets of which no copy is known.
        own: those of them that can be read from a file of the user's.
        printed: figures of the paper, by part and key.
        reference: figures of the independent implementation, by key.
        judged_rates: defenses whose encrypted sums must lie on the paper's side of those of the undefended training.
    """

    name: str  # name on the command line and in stored studies
    title: str  # title of the page
    datasets: tuple[StudyDataset, ...]  # in the paper's order
    models: Mapping[str, StudyModel]  # by name
    columns: tuple[MetricColumn, ...]  # what is measured
    settings: tuple[StudySetting, ...]  # what the parts are made of
    parts: tuple[StudyPart, ...]  # in the paper's order
    unavailable: Mapping[str, str] = field(default_factory=dict)
    own: tuple[StudyDataset, ...] = ()
    test_size: float = 0.2  # share of test rows
    validation_size: float = 0.0  # share of the other rows for validation
    first_seed: int = 1  # the first seed
    seeds: int = 5  # number of seeds
    printed: Mapping[tuple[str, FigureKey], ReferenceFigure] = field(default_factory=dict)
    reference: Mapping[FigureKey, ReferenceFigure] = field(default_factory=dict)
    judged_rates: tuple[str, ...] = ()
    metric: str = "V-measure"  # what the columns hold, in words
    claims: tuple[Claim, ...] = ()  # orders that must come out
    remarks: str = ""  # remarks on the whole study
    full: Study | None = None  # the same study at the paper's size, which ``--budget paper`` selects

    @property
    def attackers(self) -> tuple[str, ...]:
        """The parties that attack; none where the attacks decide, and a column is the mean over their parties."""
        return (ATTACKER,) if all(column.of == "attacker" for column in self.columns) else ()

    def select_parts(self, names: Sequence[str]) -> tuple[StudyPart, ...]:
        """Return the parts of these names; for no names, all but those on request.

        Raises:
            InputError: an unknown name.
        """
        self._check("part", names, [part.name for part in self.parts])
        return tuple(part for part in self.parts if part.name in names or not (names or part.on_request))

    def select_datasets(self, names: Sequence[str], *, on_request: bool = True) -> tuple[StudyDataset, ...]:
        """Return the datasets of these names; for no names, all.

        Args:
            on_request: whether "all" includes those on request.

        Raises:
            InputError: an unknown name.
        """
        self._check("dataset", names, [*(each.name for each in self.datasets), *self.unavailable])
        return tuple(
            each for each in self.datasets if each.name in names or not (names or (each.on_request and not on_request))
        )

    def datasets_of(self, part: StudyPart, datasets: Sequence[StudyDataset]) -> tuple[StudyDataset, ...]:
        """Return those of the datasets that a part shows."""
        return tuple(each for each in datasets if not part.datasets or each.name in part.datasets)

    def models_of(self, part: StudyPart) -> tuple[str, ...]:
        """Return the names of the models that a part shows."""
        return tuple(model for model in self.models if not part.models or model in part.models)

    def columns_of(self, setting: StudySetting) -> tuple[MetricColumn, ...]:
        """Return the columns that a setting measures."""
        return tuple(each for each in self.columns if not setting.columns or each.title in setting.columns)

    def tasks(self, parts: Sequence[StudyPart], datasets: Sequence[StudyDataset], seeds: int) -> tuple[StudyTask, ...]:
        """Return the tasks that the parts need, in the order in which they run."""
        needed = {
            (setting, dataset.name, model)
            for part in parts
            for setting in part.settings
            for dataset in self.datasets_of(part, datasets)
            for model in self.models_of(part)
        }
        return tuple(
            StudyTask(setting=setting, dataset=dataset, model=model, seed=seed)
            for setting in self.settings
            for dataset in datasets
            for model in self.models
            for seed in range(self.first_seed, self.first_seed + seeds)
            if (setting.name, dataset.name, model) in needed
        )

    def attack_of(self, column: MetricColumn, dataset: StudyDataset) -> ComponentSpec:
        """Return the attack of a column as configured for a dataset."""
        kind, params = column.attack.kind, column.attack.params
        if not kind.endswith("-completion"):
            return column.attack
        tuning = dataset.fine_tuning if params.get("fine_tune") else {}
        return ComponentSpec(kind, {**dataset.completion, **tuning, **params})

    def job(self, task: StudyTask, table: str, columns: Sequence[str] = ()) -> Job:
        """Return the job of a task.

        Args:
            table: the table, as a job names it.
            columns: its columns in order, for images and overlaps.
        """
        setting, dataset, model = task.setting, task.dataset, self.models[task.model].spec
        measured = self.columns_of(setting)
        parties = _parties(setting, dataset, columns)
        held = {party.name: 1 / len(parties) for party in parties} if model.kind == "pivodl" else {}
        clear = model.kind in _IN_CLEAR and not self.models[task.model].encrypted
        partition: Any = "random" if dataset.image_width else setting.partition
        job = Job(
            data=DataSection(
                table=table,
                label="label",
                test_size=self.test_size if dataset.test_size is None else dataset.test_size,
                validation_size=self.validation_size,
                split="reference",
                aligned=setting.aligned,
                categories=dataset.categories,
                partition=partition,
                labels=held,
            ),
            parties=parties,
            model=ComponentSpec(model.kind, {**model.params, **dataset.model, **setting.model}),
            encryption=_UNENCRYPTED if clear else EncryptionSection(),
            defenses=tuple(Variant(each.chain) for each in setting.defenses.get(task.model, ())),
            attacks=tuple(dict.fromkeys(self.attack_of(each, dataset) for each in measured if setting.attacked)),
            leakage=LeakageSection(
                upper_bound=dataset.upper_bound and any(each.source == "all labels" for each in measured),
                privacy=False,
            ),
            run=RunSection(seeds=(task.seed,), record=setting.record),
            tune=self.models[task.model].search,
        )
        return _overlapping(job, task, columns) if setting.overlap else job

    def _check(self, what: str, names: Sequence[str], known: Sequence[str]) -> None:
        for name in names:
            if name not in known:
                raise InputError(
                    unknown_name(what, name, known), code="unknown", field=f"study {self.name!r}", value=name
                )


_IN_CLEAR = ("secureboost", "forest", "pivodl")
"""Models that encrypt, which changes no figure but costs."""
_UNENCRYPTED = EncryptionSection(engine="plain", insecure=True, workers=1)


def _parties(setting: StudySetting, dataset: StudyDataset, columns: Sequence[str]) -> tuple[PartySection, ...]:
    """Return which party has which columns: listed ones, parts of images, or shares."""
    if dataset.party_columns:
        kept = {name: setting.active_columns if name == "active" else None for name in dataset.party_columns}
        return tuple(
            PartySection(name=name, columns=names[: kept[name]]) for name, names in dataset.party_columns.items()
        )
    share = 1.0 - dataset.active_share if setting.attacker_share is None else setting.attacker_share
    parties = dataset.parties or setting.parties
    names = ["active", *(f"party{number}" for number in range(2, parties)), ATTACKER]
    if dataset.patches:
        size = len(columns) // parties
        return tuple(
            PartySection(name=name, columns=tuple(columns[at * size : (at + 1) * size]))
            for at, name in enumerate(names)
        )
    if dataset.image_width:
        width = round(share * dataset.image_width)
        left = tuple(name for at, name in enumerate(columns) if at % dataset.image_width < width)
        right = tuple(name for at, name in enumerate(columns) if at % dataset.image_width >= width)
        return PartySection(name="active", columns=right), PartySection(name=ATTACKER, columns=left)
    if parties > 2:
        return tuple(PartySection(name=name, share=1 / parties) for name in names)
    return PartySection(name="active", share=1.0 - share), PartySection(name=ATTACKER, share=share)


def _overlapping(job: Job, task: StudyTask, columns: Sequence[str]) -> Job:
    """Return a job whose attacker has a column, or the patch, of each of the first parties as well.

    All other columns stay with the parties to which the job deals them.

    Reference: the label inference paper, Section 5.2 (multi-participant experiment).
    """
    import pyarrow as pa

    dataset = task.dataset
    held = list(assign_columns(job, task.seed, pa.table({name: [] for name in columns}), sorted))
    others = held[: task.setting.overlap]
    if dataset.patches:
        held[-1] = _side_by_side((held[-1], *others), dataset.image_width)
    else:
        held[-1] = (*held[-1], *(each[0] for each in others))
    parties = zip(job.parties, held, strict=True)
    return replace(
        job,
        data=replace(job.data, overlap=True),
        parties=tuple(PartySection(name=party.name, columns=names) for party, names in parties),
    )


def _side_by_side(images: Sequence[tuple[str, ...]], width: int) -> tuple[str, ...]:
    """Return the columns of the image that images of one size make, from left to right."""
    lines = range(0, len(images[0]), width)
    return tuple(name for at in lines for image in images for name in image[at : at + width])
