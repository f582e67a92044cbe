"""What a study is made of: data sets, models, attacks and settings by name, and the parts of a paper that show them.

A study trains once for every *task*: a setting, a data set, a model and a seed. Each is an audit in a folder of its
own, with all defenses and attacks of its setting, so that parts which share a setting share its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from labelward.errors import InputError, unknown_name
from labelward.evaluate.studies.compared import Claim, Expected, Place, Printed
from labelward.job import (
    ComponentSpec,
    DataSection,
    EncryptionSection,
    Job,
    LeakageSection,
    PartySection,
    RunSection,
    Variant,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ATTACKER",
    "NONE",
    "SECOND",
    "SUMS",
    "UTILITY",
    "Column",
    "DataSet",
    "Defended",
    "Part",
    "Setting",
    "Study",
    "Task",
]

ATTACKER = "telco"
NONE = "none"
UTILITY, SUMS = "utility", "sums"
SECOND = "second"
"""In :attr:`Column.of`: no guess of the labels, but what they tell of a further attribute."""

Form = Literal["grid", "rates", "curves", "trade-off", "information", "rivals"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSet:
    """A data set of a study.

    Attributes:
        name: in the catalogue, or what a generated one is called.
        title: what the paper calls it.
        substitute: how it differs from the paper's set, where it only stands for it.
        active: the active party's share of the columns.
        image: width of the images whose pixels the columns are, row by row; the attacker gets the left of them.
        reason: why its figures differ from the paper's, where that is known.
        utility: the metric that the paper takes.
        generate: makes the table of a seed, for sets that are drawn anew for each, or made of another.
        table: its name in the catalogue, or that of the set of which it is made, where that is another than its own.
        columns: by party, where they are not dealt out by shares.
        test_size: share of the rows that are tested on, where it is not the study's.
        model: parameters of the models that differ from the study's.
        leakage: the metric of leakage that the paper takes; ``*`` in a column's.
        completion: parameters of the attacks that complete a model.
        tuning: of those among them that fine-tune the bottom model, beside these.
        bounded: whether the upper bound of these is worked out, where a column shows it.
        also: further metrics that have rows of their own, beside the paper's.
        asked: whether it is run only where it, or a part, is named.
        secret: a column that no party holds: on which side of its median a row is, is inferred in a second step.
    """

    name: str
    title: str
    substitute: str = ""
    active: float = 0.5
    image: int = 0
    reason: str = ""
    utility: str = "auc"
    generate: Callable[[int], pa.Table] | None = None
    table: str = ""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    test_size: float | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    leakage: str = "accuracy"
    completion: Mapping[str, Any] = field(default_factory=dict)
    tuning: Mapping[str, Any] = field(default_factory=dict)
    bounded: bool = True
    also: tuple[str, ...] = ()
    asked: bool = False
    secret: str = ""

    def measured_as(self) -> tuple[tuple[str, str, str], ...]:
        """Return how its figures are called, and the metrics of utility and of leakage that they are.

        The first is the paper's, called as the data set.
        """
        return (
            (self.name, self.utility, self.leakage),
            *((f"{self.name}, {metric}", metric, metric) for metric in self.also),
        )


@dataclass(frozen=True, kw_only=True)
class Column:
    """A measure of leakage: an attack, and one of the metrics by which it is scored.

    Attributes:
        title: above it.
        attack: how it is configured, but for what a data set says of completions.
        metric: of the leakage; ``*`` in it is the data set's.
        of: of which guess: ``""``: the attack's; ``"without view"``: the same without the view; or the name of what
            stands beside it (``"logistic"``, ``"boosted"``, ``"all labels"``). ``"model"``: it is no leakage, but what
            the model of the attacked run is worth. :data:`SECOND`: of the further attribute that the guess helps to
            infer; the metric is by which model and from what.
    """

    title: str
    attack: ComponentSpec
    metric: str = "v_measure"
    of: str = ""


@dataclass(frozen=True, kw_only=True)
class Defended:
    """A defense as the paper calls it.

    Attributes:
        family: its name.
        strength: its parameter, if it has one.
        chain: how it is configured.
        symbol: of the parameter.
    """

    family: str
    chain: tuple[ComponentSpec, ...]
    strength: float | None = None
    symbol: str = ""

    @property
    def name(self) -> str:
        """Family and parameter: ``ID-LMID 0.5``."""
        return self.family if self.strength is None else f"{self.family} {self.strength:g}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """What all parties do alike in some trainings.

    Attributes:
        name: of its folder.
        value: its place on the axis of a figure.
        model: parameters that differ from the study's.
        attacker: the attacker's share of the columns; None: what the active party's leaves.
        partition: as in a job.
        defenses: beside the undefended run, by model.
        attacked: whether the attacks are run; else only views are kept.
        reference: whether reference figures were measured so.
        columns: titles of those that are measured; none: all.
        parties: how many there are; the attacker is the last of them.
    """

    name: str
    value: float | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    attacker: float | None = None
    partition: str = "random"
    defenses: Mapping[str, tuple[Defended, ...]] = field(default_factory=dict)
    attacked: bool = True
    reference: bool = False
    columns: tuple[str, ...] = ()
    parties: int = 2


@dataclass(frozen=True, kw_only=True)
class Part:
    """A table or a figure of a paper.

    Attributes:
        name: ``"table 2"``; a study that is no paper's may call it anything.
        title: what it shows.
        form: how it is drawn.
        settings: names, in the order of the axis.
        columns: titles of the columns that it shows; of rivals, the first is what the others are compared with.
        axis: what the settings' values are.
        about: what is ours in it, where the paper's text leaves things open.
        reason: what sets all of its figures apart from the paper's.
        defenses: families that it shows; empty: all.
        models: names that it shows; empty: all.
        tables: names of data sets that it shows; empty: all.
        asked: whether it is run only where it is named.
        contests: groups of columns, of each of which the best is told.
    """

    name: str
    title: str
    form: Form
    settings: tuple[str, ...]
    columns: tuple[str, ...]
    axis: str = ""
    about: str = ""
    reason: str = ""
    defenses: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    asked: bool = False
    contests: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Task:
    """One audit of a study, of one seed."""

    setting: Setting
    table: DataSet
    model: str
    seed: int

    @property
    def path(self) -> str:
        """Its folder within that of the study."""
        return f"{self.setting.name}/{self.table.name}/{self.model}/{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Study:
    """A paper's tables and figures.

    Attributes:
        name: on the command line.
        title: of the page.
        tables: data sets, in the paper's order.
        absent: data sets of the paper of which no copy is known, by name: their titles.
        models: by name.
        columns: what is measured.
        settings: what the parts are made of.
        parts: in the paper's order.
        test_size: share of the rows that are tested on.
        first: the first seed.
        seeds: how many there are.
        printed: by part and place: what the paper prints.
        expected: by place: the reference figures.
        order: defenses of which the sums must lie on the same side of the undefended ones as the paper's.
        metric: what the columns hold, in words.
        claims: orders that must come out.
        remarks: what the page says of the whole.
    """

    name: str
    title: str
    tables: tuple[DataSet, ...]
    models: Mapping[str, ComponentSpec]
    columns: tuple[Column, ...]
    settings: tuple[Setting, ...]
    parts: tuple[Part, ...]
    absent: Mapping[str, str] = field(default_factory=dict)
    test_size: float = 0.2
    first: int = 1
    seeds: int = 5
    printed: Mapping[tuple[str, Place], Printed] = field(default_factory=dict)
    expected: Mapping[Place, Expected] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    metric: str = "V-measure"
    claims: tuple[Claim, ...] = ()
    remarks: str = ""

    def chosen(self, names: Sequence[str]) -> tuple[Part, ...]:
        """Return the parts of these names, for none all that need not be named; :class:`InputError` for an unknown."""
        known = {part.name: part for part in self.parts}
        for name in names:
            if name not in known:
                raise InputError(
                    unknown_name("part", name, known), code="unknown", field=f"study {self.name!r}", value=name
                )
        return tuple(part for part in self.parts if part.name in names or not (names or part.asked))

    def data(self, names: Sequence[str], *, every: bool = True) -> tuple[DataSet, ...]:
        """Return the data sets of these names; :class:`InputError` for an unknown one.

        Args:
            names: for none of them, all.
            every: of these, also those that are to be named.
        """
        known = {table.name: table for table in self.tables}
        for name in names:
            if name not in known and name not in self.absent:
                raise InputError(
                    unknown_name("data set", name, [*known, *self.absent]),
                    code="unknown",
                    field=f"study {self.name!r}",
                    value=name,
                )
        return tuple(
            table for table in self.tables if table.name in names or not (names or (table.asked and not every))
        )

    def shown(self, part: Part, tables: Sequence[DataSet]) -> tuple[DataSet, ...]:
        """Return the data sets that a part shows."""
        return tuple(table for table in tables if not part.tables or table.name in part.tables)

    def tasks(self, parts: Sequence[Part], tables: Sequence[DataSet], seeds: int) -> tuple[Task, ...]:
        """Return what the parts need, in the order in which it is run."""
        wanted = {
            (setting, table.name, model)
            for part in parts
            for setting in part.settings
            for table in self.shown(part, tables)
            for model in part.models or self.models
        }
        return tuple(
            Task(setting=setting, table=table, model=model, seed=seed)
            for setting in self.settings
            for table in tables
            for model in self.models
            for seed in range(self.first, self.first + seeds)
            if (setting.name, table.name, model) in wanted
        )

    def columns_of(self, setting: Setting) -> tuple[Column, ...]:
        """Return the columns that a setting measures."""
        return tuple(each for each in self.columns if not setting.columns or each.title in setting.columns)

    def attack(self, column: Column, table: DataSet) -> ComponentSpec:
        """Return the attack of a column as a data set's jobs have it."""
        kind, params = column.attack.kind, column.attack.params
        if not kind.endswith("-completion"):
            return column.attack
        tuning = table.tuning if params.get("fine_tune") else {}
        return ComponentSpec(kind, {**table.completion, **tuning, **params})

    def job(self, task: Task, source: str, columns: Sequence[str] = ()) -> Job:
        """Return the job of a task.

        Args:
            task: of this study.
            source: the table, as a job names it.
            columns: of the table in order, where it holds images.
        """
        setting, table, model = task.setting, task.table, self.models[task.model]
        data: dict[str, Any] = {"partition": "random" if table.image else setting.partition}
        measured = self.columns_of(setting)
        attacks = dict.fromkeys(self.attack(each, table) for each in measured) if setting.attacked else {}
        return Job(
            data=DataSection(
                table=source,
                label="label",
                test_size=self.test_size if table.test_size is None else table.test_size,
                split="reference",
                categories="dummies",
                **data,
            ),
            parties=_parties(setting, table, columns),
            model=ComponentSpec(model.kind, {**model.params, **table.model, **setting.model}),
            encryption=EncryptionSection() if model.kind == "splitnn" else _PLAIN,
            defenses=tuple(Variant(each.chain) for each in setting.defenses.get(task.model, ())),
            attacks=tuple(attacks),
            leakage=LeakageSection(upper_bound=table.bounded and any(each.of == "all labels" for each in measured)),
            run=RunSection(seeds=(task.seed,)),
        )


_PLAIN = EncryptionSection(engine="plain", insecure=True, workers=1)


def _parties(setting: Setting, table: DataSet, columns: Sequence[str]) -> tuple[PartySection, ...]:
    """Return who holds what: listed columns, halves of images, or shares."""
    if table.columns:
        return tuple(PartySection(name=name, columns=held) for name, held in table.columns.items())
    share = 1.0 - table.active if setting.attacker is None else setting.attacker
    if table.image:
        left = [name for at, name in enumerate(columns) if at % table.image < round(share * table.image)]
        rest = tuple(name for name in columns if name not in set(left))
        return PartySection(name="active", columns=rest), PartySection(name=ATTACKER, columns=tuple(left))
    if setting.parties > 2:
        names = ["active", *(f"party{number}" for number in range(2, setting.parties)), ATTACKER]
        return tuple(PartySection(name=name, share=1 / setting.parties) for name in names)
    return PartySection(name="active", share=1.0 - share), PartySection(name=ATTACKER, share=share)
