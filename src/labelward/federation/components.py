"""The kinds that a job file may name, built and checked before anything starts, and listed for people."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from labelward.attacks.base import Attack
from labelward.data.splitting import check_split
from labelward.errors import EncryptionError, InputError, JobError, unknown_name
from labelward.evaluate.unencrypted import NoEngine
from labelward.federation.adapter import ModelAdapter
from labelward.he import ENGINES, Engine, engine
from labelward.job import EncryptionSection, Job, Kind, Variant
from labelward.policy.base import Policy
from labelward.registry import Registry
from labelward.rng import SecureRandom

__all__ = [
    "MODELS",
    "PROGRAMS",
    "ComponentInfo",
    "attack_with_defaults",
    "check_job",
    "list_components",
    "make_attack",
    "make_engine",
    "make_policies",
    "model_adapter",
    "policy_chains",
    "with_defaults",
]

MODELS: Registry[Any] = Registry(
    "model",
    "labelward.protocols",
    [
        "tree.params:SecureBoost",
        "tree.params:FederatedForest",
        "splitnn.params:SplitNet",
    ],
)

PROGRAMS = {
    "secureboost": "labelward.federation.tree_adapter:TreeAdapter",
    "forest": "labelward.federation.tree_adapter:TreeAdapter",
    "splitnn": "labelward.federation.splitnn_adapter:SplitNetAdapter",
}
"""How a kind of model is run: ``"module:class"``, whose instances are made from the model's parameters."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ComponentInfo:
    """A kind as ``labelward list`` shows it.

    Attributes:
        summary: the first line of its documentation.
        parameters: (name, default as text or ``"required"``, meaning) of each that means something for this kind.
    """

    kind: str
    summary: str
    parameters: tuple[tuple[str, str, str], ...] = ()


def with_defaults(job: Job) -> Job:
    """Return the job with all parameters of its model, defenses and attacks, and with engine "none" where it fits.

    Parties that left defaults out agree with those that did not, and so do rows. A whole number becomes a float where
    the parameter is one.

    Raises:
        JobError: a kind or a parameter is unknown or unfit, or two defenses or attacks are the same but for defaults;
            an encryption where the model encrypts nothing, or none where it does.
        DependencyError: the model needs a library that is not installed.
    """
    from labelward.attacks import ATTACKS

    model = _complete(MODELS, job.model, "[model]")
    return replace(
        job,
        model=model,
        encryption=_encryption(job.encryption, model),
        defenses=tuple(
            replace(variant, chain=tuple(_complete_defense(job, kind, _entry(variant)) for kind in variant.chain))
            for variant in job.defenses
        ),
        attacks=tuple(
            _complete(ATTACKS, attack, f"[[attack]] {number}:") for number, attack in enumerate(job.attacks, 1)
        ),
    )


def attack_with_defaults(kind: str) -> Kind:
    """Return an attack with all its default parameters."""
    from labelward.attacks import ATTACKS

    return _complete(ATTACKS, Kind(kind), "")


def check_job(job: Job) -> None:
    """Build every model, defense, attack and engine that the job names.

    Raises:
        JobError: an unknown kind or parameter, or a value that cannot be; names section and field. An attack that
            cannot read the views of such a model.
        EncryptionError: the engine does not offer the key's size.
    """
    check_split(job.data)
    programs = model_adapter(job.model)
    if job.run.record != "full" and not programs.bulky:
        raise JobError(
            f"{job.run.record!r} means nothing for {job.model.kind!r}; leave it out",
            code="unsupported",
            field="[run] record",
            value=job.run.record,
        )
    for variant in job.variants():
        policy_chains(job, variant)
    for number, attack in enumerate(job.attacks, 1):
        _placed(f"[[attack]] {number}:", partial(_check_attack, make_attack(attack), job, programs))
    if job.encryption.engine == NoEngine.name:
        return
    made = make_engine(replace(job.encryption, workers=1))
    try:
        if made.bits_offered and job.encryption.bits not in made.bits_offered:
            # only the engine knows its other sizes, and only making a key asks it
            made.generate(job.encryption.bits, protection=SecureRandom(), insecure=job.encryption.insecure)
    except EncryptionError as error:
        raise error.under("[encryption] bits:") from error
    finally:
        made.close()


def model_adapter(model: Kind) -> ModelAdapter[Any]:
    """Return how a model is run, with its parameters."""
    params = _placed("[model]", partial(MODELS.make, model.kind, model.params))
    module, _, name = PROGRAMS[model.kind].partition(":")
    programs: ModelAdapter[Any] = getattr(import_module(module), name)(params)
    return programs


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
    passive = {party.name: make_policies(variant, party.name) for party in job.passive}
    return {job.active.name: make_policies(variant), **passive}


def make_attack(attack: Kind, place: str = "[[attack]]") -> Any:
    """Return an attack with its parameters; ``place`` is what messages begin with."""
    from labelward.attacks import ATTACKS

    return _placed(place, partial(ATTACKS.make, attack.kind, attack.params))


def make_engine(section: EncryptionSection, *, background: bool = False) -> Engine:
    """Return the engine of a job, with as many worker processes as there are cores where ``workers`` is 0.

    Args:
        background: whether it may encrypt ahead while its party waits; for a party that shares no cores with others.
    """
    if section.engine == NoEngine.name:
        return NoEngine()
    if section.engine not in ENGINES:
        raise JobError(
            unknown_name("engine", section.engine, ENGINES),
            code="unknown",
            field="[encryption] engine",
            value=section.engine,
        )
    workers = section.workers or len(os.sched_getaffinity(0))
    limit = None if section.memory_limit is None else int(section.memory_limit)
    return engine(section.engine, workers=workers, background=background, memory_limit=limit)


def list_components() -> dict[str, list[ComponentInfo]]:
    """Return all kinds by family: models, defenses, attacks, engines, tables."""
    from labelward.attacks import ATTACKS
    from labelward.data import catalogue_entries
    from labelward.defenses import DEFENSES

    registries: dict[str, Registry[Any]] = {"models": MODELS, "defenses": DEFENSES, "attacks": ATTACKS}
    found = {family: [_info(*item) for item in registry.classes().items()] for family, registry in registries.items()}
    found["engines"] = []
    for name, entry in ENGINES.items():
        module, _, cls = entry.partition(":")
        found["engines"].append(ComponentInfo(kind=name, summary=_summary(getattr(import_module(module), cls))))
    found["tables"] = [
        ComponentInfo(
            kind=name,
            summary=f"{entry.title}: {entry.rows:,} rows, {entry.features} columns, "
            f"{f'{len(entry.classes)} classes' if entry.classes else 'a quantity'}",
        )
        for name, entry in catalogue_entries().items()
    ]
    return found


def _placed(section: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except InputError as error:
        placed = error if error.field.startswith("[") or not section else error.under(section)
        raise placed.translated(JobError) from error


def _entry(variant: Variant) -> str:
    return f"[[defense]] {variant.entry}:" if variant.entry else "[[defense]]"


def _complete(registry: Registry[Any], kind: Kind, section: str) -> Kind:
    made = _placed(section, partial(registry.make, kind.kind, kind.params))
    floats = {one.name for one in fields(made) if str(one.type).startswith("float")}
    params = {
        name: float(value) if name in floats and value is not None else value
        for name, value in made.parameters().items()
    }
    return Kind(kind.kind, params)


def _complete_defense(job: Job, kind: Kind, place: str) -> Kind:
    """Return a defense with all its parameters, after the ``party`` that it is given to, unless this is the active one.

    Raises:
        JobError: besides what :func:`with_defaults` raises, the job has no such party.
    """
    from labelward.defenses import DEFENSES

    party, names = kind.params.get("party"), [each.name for each in job.parties]
    complete = _complete(DEFENSES, kind.without("party"), place)
    if party is None or party == job.active.name:
        return complete
    if party not in names:
        error = JobError(unknown_name("party", str(party), names), code="unknown", field="party", value=party)
        raise error.under(place)
    return Kind(kind.kind, {"party": party, **complete.params})


def _encryption(section: EncryptionSection, model: Kind) -> EncryptionSection:
    """Return the section with an engine that fits the model."""
    none = EncryptionSection(engine=NoEngine.name)
    if model_adapter(model).encrypts:
        if section == none:
            raise JobError(
                f"'none' is for models that encrypt nothing, not for {model.kind!r}",
                code="unsupported",
                field="[encryption] engine",
                value=section.engine,
            )
        return section
    if section not in (EncryptionSection(), none):
        raise JobError(
            f"means nothing for {model.kind!r}, which encrypts nothing, so it must be left out",
            code="unsupported",
            field="[encryption]",
            value=section.engine,
        )
    return none


def _check_attack(attack: Attack, job: Job, programs: ModelAdapter[Any]) -> None:
    """Refuse an attack that cannot read the views of a job, or wants what no party of it can do."""
    attack.check_model(job.model.as_dict())
    if attack.reads_arrays and job.run.record != "full":
        raise JobError(
            f"{attack.kind!r} as it is set reads the gradients of a view, of which [run] record = {job.run.record!r} "
            'keeps digests only; set record = "full"',
            code="conflict",
            value=job.run.record,
        )
    if attack.behavior is not None:
        programs.check_behavior(attack.behavior)


def _info(kind: str, cls: type[Any]) -> ComponentInfo:
    meanings = _meanings(inspect.getdoc(cls) or "")
    parameters = []
    for field in fields(cls):
        if not field.init or field.name in getattr(cls, "idle", ()):
            continue
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        text = "required" if default is MISSING else str(default)
        parameters.append((field.name, text, meanings.get(field.name, "")))
    return ComponentInfo(kind=kind, summary=_summary(cls), parameters=tuple(parameters))


def _summary(cls: type[Any]) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def _meanings(doc: str) -> Mapping[str, str]:
    """Return what the ``Attributes`` section of a docstring says of each name."""
    section = re.search(r"^Attributes:\n((?:[ ]+.*\n?|\n)*)", doc, re.MULTILINE)
    found: dict[str, str] = {}
    names: list[str] = []
    for line in (section[1] if section else "").replace("``", "").splitlines():
        entry = re.fullmatch(r" {4}([a-z_]+(?:, [a-z_]+)*): (.*)", line)
        if entry:
            names = entry[1].split(", ")
            found.update(dict.fromkeys(names, entry[2]))
        elif line.strip():
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
    return found
