"""Registries of models, defenses, attacks and engines: construction, validation, listing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import MISSING, dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from labelward.attacks.base import Attack
from labelward.data.dataset import default_task
from labelward.data.splitting import check_split
from labelward.errors import EncryptionError, InputError, JobError, unknown_name
from labelward.extensions import extensions, loaded
from labelward.families import families
from labelward.federation.engine_choice import decided
from labelward.he import Engine, NullEngine, check_engine, engine, engine_class, engine_names
from labelward.job import ComponentSpec, EncryptionSection, Job, Variant
from labelward.parameters import as_written, documented_fields
from labelward.party.joined_view import coalition_name
from labelward.party.roles import PASSIVE
from labelward.policy.base import Policy
from labelward.protocols.family import ModelFamily
from labelward.registry import Registry
from labelward.rng import SecureRandom
from labelward.runs.short_names import variant_without_defaults

MODELS: Registry[Any] = Registry(
    "model", "", [f"{entry.package}.{params}" for entry in families() for params in entry.models.values()]
)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ComponentInfo:
    """A component as ``labelward list`` shows it.

    Attributes:
        kind: name in a job file.
        summary: first line of its documentation.
        parameters: (name, default as text or ``"required"``, description) of each supported parameter.
    """

    kind: str
    summary: str
    parameters: tuple[tuple[str, str, str], ...] = ()


def with_defaults(job: Job) -> Job:
    """Return the job with the default parameters of its model, defenses and attacks filled in.

    So jobs and result rows with and without explicit defaults are equal. What attacks leave to the model is decided
    (:meth:`~labelward.attacks.base.Attack.settled`). A model that encrypts nothing gets the engine ``"none"``.

    Raises:
        JobError: a component or parameter is unknown or invalid; two defenses or attacks are equal but for defaults; an
            engine for a model that encrypts nothing, or none for a model that does.
        DependencyError: a library that the model needs is not installed.
    """
    job = replace(job, model=_complete(MODELS, job.model, "[model]:"))
    if job.leakage.collude is not None:
        members = _coalition(job, job.leakage.collude, "[leakage] collude")
        job = replace(job, leakage=replace(job.leakage, collude=members))
    if len(job.holders) > 1:  # all parties agree on the task
        job = replace(job, data=replace(job.data, task=job.data.task or default_task(job.data.table)))
    return replace(
        job,
        encryption=_encryption(job.encryption, job.model),
        defenses=tuple(
            replace(variant, chain=tuple(_complete_defense(job, kind, _entry(variant)) for kind in variant.chain))
            for variant in job.defenses
        ),
        attacks=tuple(
            _complete_attack(job, attack, f"[[attack]] {number}:") for number, attack in enumerate(job.attacks, 1)
        ),
    )


def with_standing(job: Job, rows: int, classes: int) -> tuple[ComponentSpec, ...]:
    """Return the attacks of a completed job, and those that its audit runs though they are not listed.

    These read the split of rows, unless a published table gives it, what a parameter of the model
    (:attr:`~labelward.attacks.base.Attack.needs`) or a monotone constraint lets parties see, and what a defense of the
    job leaves (:attr:`~labelward.attacks.base.Attack.answers`).

    Args:
        job: as :func:`with_defaults` returns it.
        rows: training, validation and test rows.
        classes: how many; 0: quantities.
    """
    from labelward.attacks import ATTACKS, STANDING

    standing = [STANDING] if classes and job.data.split != "reference" else []
    variants = () if job.run.record == "digests" else job.defenses  # whose answers read gradients
    defended = {each.kind for variant in variants for each in variant.chain}
    for kind, each in ATTACKS.classes().items():
        told = each.needs or (each.reads_directions and job.constrained) or defended & {*each.answers}
        if told and each.behavior is Attack.behavior and _reads(kind, job.model.as_dict(), rows, classes):
            standing.append(kind)
    listed = {attack.kind for attack in job.attacks}
    return (*job.attacks, *(_complete(ATTACKS, ComponentSpec(kind), "") for kind in standing if kind not in listed))


def _reads(kind: str, model: Mapping[str, Any], rows: int, classes: int) -> bool:
    """Return whether an attack of default parameters reads views of a model, and needs no known labels."""
    try:
        attack = make_attack(ComponentSpec(kind))
        attack.check_model(model)
        attack.check_labels(rows, classes)
    except JobError:
        return False
    return not attack.labels_needed


def check_job(job: Job) -> None:
    """Construct every model, defense, attack and engine that the job names.

    Raises:
        JobError: an unknown component or parameter, or an invalid value; or an attack that cannot read views of the
            model.
        EncryptionError: the engine does not support the key length.
    """
    check_split(job.data)
    programs = model_family(job.model)
    programs.topology([party.name for party in job.parties], job.holders)
    if job.run.record != "full" and not programs.bulky:
        raise JobError(
            f"{job.run.record!r} is not supported for {job.model.kind!r}; remove it",
            code="unsupported",
            field="[run] record",
            value=job.run.record,
        )
    _check_edges(job, programs)
    for variant in job.variants():
        policy_chains(job, variant)
    taken: set[tuple[str, ComponentSpec]] = set()
    for number, attack in enumerate(job.attacks, 1):
        _placed(f"[[attack]] {number}:", partial(_check_attack, make_attack(attack), job, programs))
        parties = {(party, bare_attack(attack)) for party in attacking_parties(job, attack)}
        if not parties:
            roles = " or ".join(make_attack(attack).roles)
            reason = f"{attack.kind!r} reads views of {roles} parties"
            party = attack.params.get("party")
            raise JobError(reason, code="conflict", field=f"[[attack]] {number}: party", value=party)
        if parties & taken:
            reason = "another entry has this attack by the same party"
            raise JobError(reason, code="duplicate", field=f"[[attack]] {number}", value=attack.label)
        taken |= parties
    check_key_length(job.encryption)


def check_key_length(section: EncryptionSection) -> None:
    """Refuse a key length that the engine does not support.

    Raises:
        EncryptionError: as said.
    """
    if section.engine == NullEngine.name:
        return
    try:
        with closing(make_engine(replace(section, workers=1))) as built:
            if built.bits_offered and section.bits not in built.bits_offered:
                # only the engine knows which other sizes it supports, and only generating a key asks it
                built.generate(section.bits, protection=SecureRandom(), insecure=section.insecure)
    except EncryptionError as error:
        raise error.under("[encryption] bits:") from error


def model_family(model: ComponentSpec) -> ModelFamily[Any]:
    """Return the family of a model, with its parameters."""
    params = _placed("[model]:", partial(MODELS.make, model.kind, model.params))
    entry = next(entry for entry in families() if model.kind in entry.models)
    module, _, name = entry.family.partition(":")
    family: ModelFamily[Any] = getattr(import_module(f"{entry.package}.{module}"), name)(params)
    return family


def make_policies(variant: Variant, party: str | None = None) -> tuple[Policy, ...]:
    """Return a party's policies of one variant of a completed job, new ones on each call.

    Args:
        party: a passive party; None: the active party.
    """
    from labelward.defenses import DEFENSES

    own = [kind.without("party") for kind in variant.part(party).chain]
    return tuple(_placed(_entry(variant), partial(DEFENSES.make, kind.kind, kind.params)) for kind in own)


def policy_chains(job: Job, variant: Variant) -> dict[str, tuple[Policy, ...]]:
    """Return by party the policies of one variant of a completed job, new ones on each call."""
    alike = model_family(job.model).defended_alike
    of_all = make_policies(variant) if alike else ()
    passive = {
        party.name: (*(make_policies(variant) if of_all else ()), *make_policies(variant, party.name))
        for party in job.passive
    }
    return {job.active.name: make_policies(variant), **passive}


def common_defense(job: Job, variant: Variant) -> str:
    """Return the name of the defenses that must be equal at all parties, where these are defended alike, or ``""``."""
    if not model_family(job.model).defended_alike:
        return ""
    return variant_without_defaults(variant.part(None)).slug


def own_part(job: Job, variant: Variant, party: str) -> Variant:
    """Return the defenses of a variant that a party applies."""
    alike = model_family(job.model).defended_alike or party == job.active.name
    owners = {party} - {job.active.name} | ({None} if alike else set())
    return Variant(tuple(spec for spec in variant.chain if spec.params.get("party") in owners), variant.entry)


def make_attack(attack: ComponentSpec, place: str = "[[attack]]") -> Any:
    """Return an attack with its parameters; errors name ``place``."""
    from labelward.attacks import ATTACKS

    return _placed(place, partial(ATTACKS.make, attack.kind, bare_attack(attack).params))


def bare_attack(attack: ComponentSpec) -> ComponentSpec:
    """Return an attack of a job without the keys that say who runs it."""
    return attack.without("party").without("collude")


def attacking_parties(job: Job, attack: ComponentSpec) -> tuple[str, ...]:
    """Return the parties that run an attack, passive ones first.

    They are those of the attack's roles, or of these the one that its key ``party`` names, by its name or role; or the
    coalition of its key ``collude``, under one name. Without these keys the coalition of ``[leakage]`` comes last.
    """
    made, wanted, colluding = make_attack(attack), attack.params.get("party"), attack.params.get("collude")
    if colluding:
        return (coalition_name(colluding),)
    family, names = model_family(job.model), [party.name for party in job.parties]
    assigned = family.topology(names, job.holders).assigned
    found = [name for name in (*names[1:], names[0]) if {*family.roles[assigned[name]].attacks_as} & {*made.roles}]
    if wanted is None:
        joined = job.leakage.collude if job.leakage.collude and not made.alone else ()
        return (*found, coalition_name(joined)) if joined else tuple(found)
    return tuple(name for name in found if wanted == (name if wanted in names else assigned[name]))


def job_engine(job: Job, *, background: bool = False) -> Engine:
    """Return the engine of a completed job, as :func:`make_engine` does; ``"none"`` where its parameters need none."""
    return make_engine(job.encryption, background=background) if model_family(job.model).uses_engine else NullEngine()


def make_engine(section: EncryptionSection, *, background: bool = False) -> Engine:
    """Return the engine of a job; with ``workers = 0`` it uses one worker process per core.

    Args:
        section: engine and key.
        background: whether it may encrypt ahead while its party waits; for a party that shares no cores with others.
    """
    if section.engine == NullEngine.name:
        return NullEngine()
    _check_engine_name(section)
    limit = None if section.memory_limit is None else int(section.memory_limit)
    return _placed(
        "[encryption]",
        partial(
            engine,
            section.engine,
            parameters=section.engine_parameters,
            workers=section.processes,
            background=background,
            memory_limit=limit,
        ),
    )


def list_components() -> dict[str, list[ComponentInfo]]:
    """Return all components by family: models, defenses, attacks, engines, tables."""
    from labelward.attacks import ATTACKS
    from labelward.data import catalog_entries
    from labelward.defenses import DEFENSES

    registries: dict[str, Registry[Any]] = {"models": MODELS, "defenses": DEFENSES, "attacks": ATTACKS}
    found = {name: [_info(*item) for item in registry.classes().items()] for name, registry in registries.items()}
    broken = set(extensions("engines")) - set(loaded("engines"))
    engines = {name: engine_class(name) for name in engine_names() if name not in broken}
    found["engines"] = [_info(name, each, each.Parameters) for name, each in engines.items()]
    found["tables"] = []
    for name, table in catalog_entries().items():
        label = f"{len(table.classes)} classes" if table.classes else "regression"
        summary = f"{table.title}: {table.rows:,} rows, {table.features} columns, {label}"
        found["tables"].append(ComponentInfo(kind=name, summary=summary))
    return found


def _placed(section: str, construct: Callable[[], T]) -> T:
    """Call a constructor; errors name the section of the job file."""
    try:
        return construct()
    except InputError as error:
        placed = error if error.field.startswith("[") or not section else error.under(section)
        raise placed.translated(JobError) from error


def _entry(variant: Variant) -> str:
    return f"[[defense]] {variant.entry}:" if variant.entry else "[[defense]]"


def _complete(registry: Registry[Any], spec: ComponentSpec, section: str) -> ComponentSpec:
    component = _placed(section, partial(registry.make, spec.kind, spec.params))
    return ComponentSpec(spec.kind, component.parameters())


def _complete_attack(job: Job, attack: ComponentSpec, place: str) -> ComponentSpec:
    """Return an attack with all its parameters, after its ``party`` if it names one; of a job whose model is complete.

    Raises:
        JobError: as :func:`with_defaults`, or the job has no such party or role.
    """
    made, party = make_attack(attack, place).settled(job.model.as_dict()), attack.params.get("party")
    complete = ComponentSpec(attack.kind, made.parameters())
    if attack.params.get("collude") is not None:
        if party is not None:
            raise JobError("is not allowed next to collude", code="conflict", field=f"{place} party", value=party)
        if reason := made.alone:
            reason = f"{attack.kind!r} reads no view of a coalition: {reason}"
            raise JobError(reason, code="unsupported", field=f"{place} collude", value=attack.params["collude"])
        members = _coalition(job, attack.params["collude"], f"{place} collude")
        return ComponentSpec(attack.kind, {"collude": members, **complete.params})
    if party is None:
        return complete
    names = list(dict.fromkeys([*(each.name for each in job.parties), "active", "passive"]))
    if party not in names:
        error = JobError(unknown_name("party", str(party), names), code="unknown", field="party", value=party)
        raise error.under(place)
    return ComponentSpec(attack.kind, {"party": party, **complete.params})


def _coalition(job: Job, wanted: Any, place: str) -> tuple[str, ...]:
    """Return the passive parties that a key ``collude`` names, in party order; :class:`JobError` for anything else."""
    passive = [party.name for party in job.passive]
    if not isinstance(wanted, tuple) or len(set(wanted)) != len(wanted) or len(wanted) < 2:
        reason = f"must be at least two different passive parties, not {as_written(wanted)}"
        raise JobError(reason, code="type", field=place, value=wanted)
    for name in wanted:
        if name not in passive:
            raise JobError(unknown_name("passive party", str(name), passive), code="unknown", field=place, value=name)
    if PASSIVE not in model_family(job.model).roles:
        reason = f"is not supported for {job.model.kind!r}, where several parties may hold labels"
        raise JobError(reason, code="unsupported", field=place, value=wanted)
    return tuple(name for name in passive if name in wanted)


def _complete_defense(job: Job, kind: ComponentSpec, place: str) -> ComponentSpec:
    """Return a defense with all its parameters, after its ``party`` unless this is the active one.

    Raises:
        JobError: as :func:`with_defaults`, or the job has no such party.
    """
    from labelward.defenses import DEFENSES

    party, names = kind.params.get("party"), [each.name for each in job.parties]
    complete = _complete(DEFENSES, kind.without("party"), place)
    if party is not None and party not in names:
        error = JobError(unknown_name("party", str(party), names), code="unknown", field="party", value=party)
        raise error.under(place)
    if party is not None and model_family(job.model).defended_alike:
        reason = f"is not for {job.model.kind!r}, where a defense acts at all parties or protects nobody; remove it"
        raise JobError(reason, code="unsupported", field="party", value=party).under(place)
    if party is None or party == job.active.name:
        return complete
    return ComponentSpec(kind.kind, {"party": party, **complete.params})


def _encryption(section: EncryptionSection, model: ComponentSpec) -> EncryptionSection:
    """Return the section with an engine that fits the model."""
    none = EncryptionSection(engine=NullEngine.name)
    if model_family(model).encrypts:
        if section == none:
            raise JobError(
                f"'none' is not supported for {model.kind!r}, which encrypts; remove it",
                code="unsupported",
                field="[encryption] engine",
                value=section.engine,
            )
        return _with_engine_defaults(section)
    if section not in (EncryptionSection(), none):
        raise JobError(
            f"is not supported for {model.kind!r}, which encrypts nothing; remove it",
            code="unsupported",
            field="[encryption]",
            value=section.engine,
        )
    return none


def _with_engine_defaults(section: EncryptionSection) -> EncryptionSection:
    """Return the section with all parameters of its engine; ``auto`` is decided."""
    section = decided(section)
    _check_engine_name(section)
    check = partial(check_engine, section.engine, section.engine_parameters, insecure=section.insecure)
    return replace(section, engine_parameters=_placed("[encryption]", check).parameters())


def _check_engine_name(section: EncryptionSection) -> None:
    if section.engine not in engine_names():
        raise JobError(
            unknown_name("engine", section.engine, engine_names()),
            code="unknown",
            field="[encryption] engine",
            value=section.engine,
        )


def _check_edges(job: Job, programs: ModelFamily[Any]) -> None:
    """Refuse stated edges of buckets where the model has none."""
    for section in (job.data, *job.parties):
        if section.edges and not programs.takes_edges:
            raise section.error("edges", f"is not for {job.model.kind!r}; remove it", code="unsupported")


def _check_attack(attack: Attack, job: Job, programs: ModelFamily[Any]) -> None:
    """Refuse an attack that cannot read the views of the job, or whose behavior no party of it supports."""
    attack.check_model(job.model.as_dict())
    if attack.reads_directions and not job.constrained:
        raise JobError(
            f"{attack.kind!r} reads splits of columns with a monotone constraint, and no column has one; set monotone, "
            "or remove the attack",
            code="conflict",
            value=attack.kind,
        )
    if attack.reads_epochs and job.run.record != "epochs":
        raise JobError(
            f"{attack.kind!r} after an epoch reads embeddings that [run] record = {job.run.record!r} does not store; "
            'set record = "epochs"',
            code="conflict",
            field="[run] record",
            value=job.run.record,
        )
    if attack.reads_arrays and job.run.record == "digests":
        raise JobError(
            f"{attack.kind!r} with these parameters reads gradients, of which [run] record = {job.run.record!r} "
            'stores digests only; set record = "full"',
            code="conflict",
            value=job.run.record,
        )
    if attack.behavior is not None:
        programs.make_behavior(attack.behavior)


def _info(kind: str, cls: type[Any], declared: type[Any] | None = None) -> ComponentInfo:
    """Return a component's name, summary and parameters; ``declared``: the class of its parameters, if not its own."""
    parameters = []
    for field, description in documented_fields(declared or cls):
        if field.name in getattr(cls, "unsupported", ()):
            continue
        default = field.default if field.default_factory is MISSING else field.default_factory()
        text = "required" if default is MISSING else str(default)
        parameters.append((field.name, text, description))
    return ComponentInfo(kind=kind, summary=_summary(cls), parameters=tuple(parameters))


def _summary(cls: type[Any]) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]
