"""Strategies of search behind one interface: ``ask`` for settings, ``tell`` what they gave.

All draws are from the seed, and what is asked depends on nothing but the seed and what was told. So a search that is
repeated with stored results takes the same path, whatever was running side by side.

Sources: NSGA-II with the operators of the CMOSB paper, Section VII-A, from pymoo; the tree-structured Parzen estimator
and Gaussian processes from Optuna, but for those of the first settings of ``tpe``, :mod:`labelward.tuning.improvement`;
the empirical settings of Section VII-C.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from labelward.errors import JobError
from labelward.installation import missing_library
from labelward.job import TuneSection
from labelward.tuning.constraints import exceeded
from labelward.tuning.improvement import Surrogate, confidence, directions, reaches
from labelward.tuning.pareto import Points, hypervolume, shortfall
from labelward.tuning.space import Setting, Value, Variable

BATCH = 2
"""Settings that a strategy which learns from each asks for at a time; fixed, so that workers change nothing. Twice as
many where only the better half is trained on all rows: of four it is found more often than of two."""
STARTUP, FEW = 6, 40
"""Settings that ``tpe`` spreads evenly at first, in whole batches, and those from which Parzen estimators decide."""
_DRAWN, _NEAR, _STEP, _ENDS = 192, 64, 0.15, 0.2
"""Settings of which Gaussian processes choose: drawn evenly, half of them with so large a share of values at either end
of a range; and around the best, in steps of the range."""
_DIRECTIONS, _SAME, _APART = 32, 1e-6, 0.15
"""Directions in which trainings are compared, how far apart settings are that count as different, and how far from all
known ones, or half as far as it could, one is that is chosen for what it has by itself."""
_BEST, _LATEST = 12, 20
"""Settings that ``tpe`` remembers at least, once there are twice as many: the best, and the latest."""
_MOST_SETTINGS = 1_000_000
"""Settings of a grid at most; they are held."""
_EMPIRICAL = (
    {"model.trees": 5, "model.depth": 3, "model.learning_rate": 0.3},
    {"model.trees": 20, "model.depth": 7, "model.learning_rate": 0.1},
    {"model.trees": 10, "model.depth": 5, "model.learning_rate": 0.3},
)
"""FATE, VF²Boost, average; all with one local tree, and four rows of five for each tree."""
_COMMON = {"model.row_fraction": 0.8, "local-trees.count": 1, "purity-threshold.threshold": 1.0}


@dataclass(frozen=True)
class Told:
    """What a setting gave.

    Attributes:
        setting: a value for each variable.
        values: the objectives, all minimized; of a setting that failed or is refused the worst.
        excess: by constraint by how much it is exceeded; 0 or less within.
        points: float64 [points, objectives]: those of its training that count, first trees included, from 0, the best
            corner of the bounds, to 1, the worst.
    """

    setting: Setting
    values: tuple[float, ...]
    excess: tuple[float, ...] = ()
    points: Points = field(default_factory=lambda: np.ones((1, 1)))

    @property
    def volume(self) -> float:
        """The hypervolume of the training by itself; where it has none, what its nearest point lacks, negative."""
        corners = np.stack([np.zeros(self.points.shape[1]), np.ones(self.points.shape[1])])
        return hypervolume(self.points, corners) or -shortfall(self.points)


class Search(ABC):
    """A strategy.

    Args:
        variables: of the space.
        section: ``[tune]``.
        seed: of all draws.
    """

    def __init__(self, variables: Sequence[Variable], section: TuneSection, seed: int) -> None:
        self.variables, self.section, self.seed = tuple(variables), section, seed
        self.rng, self.batch = np.random.default_rng(seed), 2 * BATCH if section.fidelity else BATCH

    @abstractmethod
    def ask(self) -> list[Setting]:
        """Return the next settings; none where the strategy has no more."""

    def tell(self, told: Sequence[Told]) -> None:  # noqa: B027
        """Take the results of the settings asked for last, in their order.

        Settings that come for free, such as the first trees of a model, are told by the hypervolume of all alone: they
        lie close together, and the model of ``tpe`` finds less with them one by one.
        """

    def random(self) -> Setting:
        """Return a setting drawn evenly."""
        return self._at(self.rng.random(len(self.variables)).tolist())

    def _at(self, places: Sequence[float]) -> dict[str, Value]:
        return {each.name: each.at(place) for each, place in zip(self.variables, places, strict=True)}


class RandomSearch(Search):
    """Independent settings, even over the ranges."""

    def ask(self) -> list[Setting]:
        """Return a few."""
        return [self.random() for _ in range(self.batch)]


class GridSearch(Search):
    """The coarsest grid that has as many settings as there are evaluations, in an order drawn by the seed.

    Variables that say how many of their values are tried have so many; where all of them do, it may end early.
    """

    def __init__(self, variables: Sequence[Variable], section: TuneSection, seed: int) -> None:
        super().__init__(variables, section, seed)
        levels = [each.levels or 1 for each in self.variables]
        most = [each.levels or each.count or section.evaluations for each in self.variables]
        while np.prod(np.array(levels, np.float64)) < section.evaluations and levels != most:
            free = [at for at, count in enumerate(levels) if count < most[at]]
            levels[min(free, key=lambda at: levels[at])] += 1
        if (settings := math.prod(levels)) > _MOST_SETTINGS:
            reason = f"make a grid of {settings} settings, of which at most {_MOST_SETTINGS} are drawn from; lower them"
            raise JobError(reason, code="range", field="[[tune.variable]] levels", value=settings)
        axes = [
            [each.at(0.5)] if count == 1 else [each.at(float(place)) for place in np.linspace(0.0, 1.0, count)]
            for each, count in zip(self.variables, levels, strict=True)
        ]
        self._settings = list(itertools.product(*axes))
        self._order = self.rng.permutation(len(self._settings)).tolist()

    def ask(self) -> list[Setting]:
        """Return the next few of the grid."""
        chosen, self._order = self._order[: self.batch], self._order[self.batch :]
        names = [each.name for each in self.variables]
        return [dict(zip(names, self._settings[at], strict=True)) for at in chosen]


class EmpiricalSearch(Search):
    """The three settings that practice recommends, as far as the space has their variables."""

    def __init__(self, variables: Sequence[Variable], section: TuneSection, seed: int) -> None:
        super().__init__(variables, section, seed)
        self._left = [{each.name: self._value(each, chosen) for each in self.variables} for chosen in _EMPIRICAL]

    def ask(self) -> list[Setting]:
        """Return them, once."""
        found, self._left = list[Setting](self._left), []
        return found

    @staticmethod
    def _value(variable: Variable, chosen: Mapping[str, float]) -> Value:
        value = {**_COMMON, **chosen}.get(variable.name)
        if value is None or variable.choices or not variable.low <= value <= variable.high:
            return variable.at(0.5)
        return int(value) if variable.whole else value


class EvolutionarySearch(Search):
    """NSGA-II: single-point crossover (.9) and bit flips (.1 a bit); SBX (.9, 2) and polynomial mutation (.1, 20)."""

    def __init__(self, variables: Sequence[Variable], section: TuneSection, seed: int) -> None:
        super().__init__(variables, section, seed)
        from pymoo.algorithms.moo.nsga2 import NSGA2, binary_tournament
        from pymoo.core.mixed import MixedVariableDuplicateElimination, MixedVariableMating, MixedVariableSampling
        from pymoo.core.problem import Problem
        from pymoo.core.termination import NoTermination
        from pymoo.core.variable import Binary, Real
        from pymoo.operators.crossover.pntx import SinglePointCrossover
        from pymoo.operators.crossover.sbx import SBX
        from pymoo.operators.mutation.bitflip import BFM
        from pymoo.operators.mutation.pm import PM
        from pymoo.operators.selection.tournament import TournamentSelection

        chromosome: dict[str, Any] = {}
        for each in self.variables:
            chromosome |= {f"{each.name}:{bit}": Binary() for bit in range(each.bits)}
            if not each.bits:
                chromosome[each.name] = Real(bounds=(0.0, 1.0))
        limits = len(section.constraints) if section.handling == "feasible-first" else 0
        self._problem = Problem(vars=chromosome, n_obj=len(section.objectives), n_ieq_constr=limits)
        once = MixedVariableDuplicateElimination()
        self._algorithm = NSGA2(
            pop_size=section.population,
            sampling=MixedVariableSampling(),
            mating=MixedVariableMating(
                selection=TournamentSelection(func_comp=binary_tournament),
                crossover={Binary: SinglePointCrossover(prob=0.9), Real: SBX(prob=0.9, eta=2)},
                mutation={Binary: BFM(prob=1.0, prob_var=0.1), Real: PM(prob=1.0, prob_var=0.1, eta=20)},
                eliminate_duplicates=once,
            ),
            eliminate_duplicates=once,
        )
        self._algorithm.setup(self._problem, termination=NoTermination(), seed=seed, verbose=False)
        self._asked: Any = None

    def ask(self) -> list[Setting]:
        """Return a generation."""
        self._asked = self._algorithm.ask()
        return [] if self._asked is None else [self._setting(each.X) for each in self._asked]

    def tell(self, told: Sequence[Told]) -> None:
        """Select the next generation."""
        from pymoo.core.evaluator import Evaluator
        from pymoo.problems.static import StaticProblem

        known = {"F": np.array([each.values for each in told])}
        if self._problem.n_ieq_constr:
            known["G"] = np.array([each.excess for each in told])
        Evaluator().eval(StaticProblem(self._problem, **known), self._asked)
        self._algorithm.tell(infills=self._asked)

    def _setting(self, chromosome: Mapping[str, Any]) -> Setting:
        found = {}
        for each in self.variables:
            bits = [bool(chromosome[f"{each.name}:{bit}"]) for bit in range(each.bits)]
            code = sum(1 << place for place, bit in enumerate(reversed(bits)) if bit)
            found[each.name] = each.decoded(code) if bits else each.at(float(chromosome[each.name]))
        return found


class ModelSearch(Search):
    """A model of what settings give, from Optuna: Parzen estimators, or Gaussian processes.

    Attributes:
        kind: the sampler.
    """

    kind: ClassVar[str]

    def __init__(self, variables: Sequence[Variable], section: TuneSection, seed: int) -> None:
        super().__init__(variables, section, seed)
        self._studies = self._begin()
        self._trials: list[tuple[int, Any]] = []
        self._turn = 0

    def _begin(self) -> list[Any]:
        """Return the studies, which take turns."""
        return [study_of(len(self.section.objectives), sampler_of(self.kind, self.seed))]

    def ask(self) -> list[Setting]:
        """Return a few."""
        self._trials = []
        for _ in range(self.batch):
            study = self._turn % len(self._studies)
            self._trials.append((study, self._studies[study].ask(distributions_of(self.variables))))
            self._turn += 1
        return [self._setting(trial.params) for _, trial in self._trials]

    def tell(self, told: Sequence[Told]) -> None:
        """Extend the studies."""
        for (study, trial), each in zip(self._trials, told, strict=True):
            for name, excess in self._limits(each).items():
                trial.set_constraint(name, excess)
            self._studies[study].tell(trial, self._values(each, study))

    def _values(self, told: Told, study: int) -> list[float]:
        return list(told.values)

    def _limits(self, told: Told) -> dict[str, float]:
        if self.section.handling != "feasible-first":
            return {}
        return dict(zip(self.section.constraints, told.excess, strict=True))

    def _setting(self, params: Mapping[str, Any]) -> Setting:
        return {
            each.name: each.rounded(params[each.name]) if not (each.choices or each.whole) else params[each.name]
            for each in self.variables
        }


class ParzenSearch(ModelSearch):
    """Tree-structured Parzen estimators of all variables together, once there are :data:`FEW` settings.

    Of fewer they tell next to nothing: they take one setting in ten for a good one. So the first :data:`STARTUP` are of
    a Sobol sequence; Gaussian processes, of what settings have and of what they add, choose those up to :data:`FEW`.

    Of several objectives the estimators maximize what a training has by itself, the hypervolume of all its trees: of
    ten settings most are beaten by none, so that what is beaten says little.
    """

    kind = "tpe"

    def __init__(self, variables: Sequence[Variable], section: TuneSection, seed: int) -> None:
        super().__init__(variables, section, seed)
        from scipy.stats.qmc import Sobol

        self._few = list[Setting]()
        self._along = directions(_DIRECTIONS, len(section.objectives), self.rng)
        self._reached = np.empty((0, _DIRECTIONS))
        self._even = -(-STARTUP // self.batch) * self.batch
        places = Sobol(len(self.variables), rng=self.rng).random_base2(self._even.bit_length())[: self._even]
        for row in places.tolist():
            self._studies[0].enqueue_trial(self._at(row))

    def ask(self) -> list[Setting]:
        """Return a few."""
        if self._even <= len(self._few) < FEW:
            for setting in self._promising():
                self._studies[0].enqueue_trial(setting)
        self._forget()
        return super().ask()

    def tell(self, told: Sequence[Told]) -> None:
        """Extend the study, and what is known of the first settings."""
        super().tell(told)
        if len(self._few) < FEW:
            rows = [reaches(each.points, self._along) - exceeded(self._limits(each).values()) for each in told]
            self._reached = np.vstack([self._reached, *rows])
            self._few += [each.setting for each in told]

    def _begin(self) -> list[Any]:
        return [study_of(1, sampler_of(self.kind, self.seed))]

    def _values(self, told: Told, study: int) -> list[float]:
        return list(told.values) if len(told.values) == 1 else [-told.volume]

    def _coordinates(self, settings: Sequence[Setting]) -> Points:
        """Return float64 [settings, coordinates]: the places of numbers; words are equally far from each other."""
        columns = list[list[float]]()
        for each in self.variables:
            values = [setting[each.name] for setting in settings]
            if any(isinstance(choice, str) for choice in each.choices):
                columns += [[0.5 * (value == choice) for value in values] for choice in each.choices]
            else:
                columns.append([each.place(value) for value in values])
        return np.array(columns, np.float64).T

    def _promising(self) -> list[Setting]:
        """Return the settings, unlike all known ones, that promise most.

        By turns the one that is expected to add most to what is known, and the one that may have most by itself: where
        luck decides the first finds more, where settings differ smoothly the second. Each counts for the next as if it
        gave what is expected.
        """
        candidates = self._candidates([self._few[at] for at in np.argmax(self._reached, axis=0)])
        known, new, reached = self._coordinates(self._few), self._coordinates(candidates), self._reached
        chosen = list[Setting]()
        for turn in range(self.batch):
            if not turn % 2:
                model = Surrogate(known, reached)
            promise = confidence(known, reached, new) if turn % 2 else model.improvement(new)
            far = cdist(new, known).min(axis=1)
            apart = min(_APART if turn % 2 else _SAME, far.max() / 2)
            best = int(np.argmax(np.where(far > apart, promise, -np.inf)))
            chosen.append(candidates[best])
            known, reached = np.vstack([known, new[best]]), np.vstack([reached, model.expected(new[[best]])])
        return chosen

    def _candidates(self, best: Sequence[Setting]) -> list[Setting]:
        """Return settings drawn evenly, at the ends of ranges, and around the best of each direction."""
        even = self.rng.random((_DRAWN, len(self.variables)))
        ends = self.rng.random((_DRAWN // 2, len(self.variables)))
        even[: len(ends)] = np.where(ends < _ENDS, 0.0, np.where(ends > 1 - _ENDS, 1.0, even[: len(ends)]))
        centers = np.array([[each.place(setting[each.name]) for each in self.variables] for setting in best])
        near = centers[self.rng.integers(len(centers), size=_NEAR)]
        near = np.clip(near + _STEP * self.rng.standard_normal(near.shape), 0.0, 1.0)
        return [self._at(row) for row in np.concatenate([even, near]).tolist()]

    def _forget(self) -> None:
        """Keep the best and the latest settings of a long search: the time of a proposal grows with their number."""
        from optuna.trial import TrialState

        study = self._studies[0]
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(trials) < 2 * (_BEST + _LATEST):
            return
        early = trials[:-_LATEST]
        beyond = [exceeded(trial.constraints.values()) for trial in early]
        order = np.lexsort(([trial.value for trial in early], beyond))[:_BEST]
        self._studies = [study_of(1, study.sampler)]
        self._studies[0].add_trials([early[at] for at in sorted(order.tolist())] + trials[-_LATEST:])


class GaussianSearch(ModelSearch):
    """One Gaussian process for all objectives, by expected improvement of the hypervolume."""

    kind = "gp"


class BayesianSearch(ModelSearch):
    """One Gaussian process for each objective, each with its share of the evaluations; results are pooled."""

    kind = "gp"

    def _begin(self) -> list[Any]:
        return [study_of(1, sampler_of(self.kind, self.seed + at)) for at in range(len(self.section.objectives))]

    def _values(self, told: Told, study: int) -> list[float]:
        return [told.values[study]]


def study_of(objectives: int, sampler: Any) -> Any:
    """Return an Optuna study in memory that minimizes so many objectives."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(directions=["minimize"] * objectives, sampler=sampler)


def sampler_of(kind: str, seed: int) -> Any:
    """Return an Optuna sampler; :class:`DependencyError` for a Gaussian process without torch."""
    import optuna

    if kind == "tpe":
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=1)
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise missing_library("a Bayesian search", "torch", "tune", "nets", field="[tune] search") from error
    return optuna.samplers.GPSampler(seed=seed)


def distributions_of(variables: Sequence[Variable]) -> dict[str, Any]:
    """Return Optuna's distributions of variables."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, Any] = {}
    for each in variables:
        if each.choices:
            found[each.name] = CategoricalDistribution(each.choices)
        elif each.whole:
            found[each.name] = IntDistribution(int(each.low), int(each.high))
        else:
            found[each.name] = FloatDistribution(each.low, each.high, log=each.log)
    return found


SEARCHES: Mapping[str, type[Search]] = {
    "tpe": ParzenSearch,
    "gp": GaussianSearch,
    "nsga2": EvolutionarySearch,
    "random": RandomSearch,
    "grid": GridSearch,
    "bayes": BayesianSearch,
    "empirical": EmpiricalSearch,
}


def require_libraries() -> None:
    """Raise :class:`DependencyError` where Optuna or pymoo is not installed."""
    try:
        import optuna  # noqa: F401
        import pymoo  # noqa: F401
    except ImportError as error:
        raise missing_library("a search", str(error.name), "tune") from error
