"""Disturbed runs: drawn from a seed, played, and held to the run that nobody disturbs.

``python chaos.py RUNS SEED [FOLDER]`` plays many and prints a table (``make chaos``).
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from companies import LISTENER, PATIENCE, Case, Companies, Process, companies
from troubled import Proxy, Weather
from undisturbed import DRAWS, Undisturbed, differences, end_of

TWO = ("bank", "telco")
NOISE = '[[defense]]\nkind = "randomized-response"\nepsilon = 1.0'
GRAFTED = '[[defense]]\nchain = [{ kind = "lp-mst", epsilon = 1.0 }, { kind = "grafting", unrepaired = "relabel" }]'
CASES = {
    "boosted": Case(),
    "forest": Case(
        model='kind = "forest"\ntrees = 6\ndepth = 3\ntrees_at_once = 2\nreplace = true\nrow_fraction = 1.0'
    ),
    "classes": Case(model="trees = 3\ndepth = 3", parties=TWO, classes=3),
    "tree for each class": Case(model='trees = 2\ndepth = 2\nmulti_strategy = "one_output_per_tree"', classes=3),
    "stops early": Case(
        model="trees = 12\ndepth = 2\nlearning_rate = 1.0\nearly_stopping_rounds = 2", data="validation_size = 0.25"
    ),
    "noise": Case(active=NOISE, noisy=True),
    "noise, grafted": Case(
        model='kind = "forest"\ntrees = 4\ndepth = 3', parties=TWO, active=GRAFTED, classes=3, noisy=True
    ),
    "budget": Case(active="[leakage]\nbudget = 0.4"),
    "goss": Case(model='trees = 4\ndepth = 3\nsampling = "goss"\ntop_rate = 0.3\nother_rate = 0.2'),
    "in turns": Case(model='trees = 6\ndepth = 2\nmode = "mixed"\nrow_fraction = 0.7\nfeature_fraction = 0.7'),
    "paillier 512": Case(model="trees = 3\ndepth = 2\nbins = 8", encryption="bits = 512\ninsecure = true\nworkers = 1"),
    "paillier 2048": Case(model="trees = 2\ndepth = 2\nbins = 4", parties=TWO, encryption="workers = 1", rows=60),
}
MOMENTS = ("start", "session", "attempt", "agreed", "trees", "saved", "finished")
"""After which word of a party's log a fault may come; ``start``: of its process."""
KINDS = {
    "kill": 6,
    "kill two": 2,
    "kill again": 2,
    "kill all": 1,
    "cut": 3,
    "partition": 2,
    "freeze": 2,
    "stop": 2,
    "slow": 1,
}


@dataclass(frozen=True)
class Fault:
    """What happens, to whom, when.

    Attributes:
        moment: one of :data:`MOMENTS`; ``count``: which of them.
        wait: seconds after it.
        seconds: how long it lasts.
    """

    kind: str
    party: str
    other: str
    moment: str
    count: int
    wait: float
    seconds: float

    def __str__(self) -> str:
        also = f" and {self.other}" if self.kind == "kill two" else ""
        return (
            f"{self.kind} {self.party}{also} {self.wait:.2f} s after {self.moment} {self.count}, {self.seconds:.1f} s"
        )


@dataclass(frozen=True)
class Plan:
    """A disturbed run: all of it follows from the seed."""

    seed: int
    case: str
    relay: bool
    mangled: bool
    weather: Weather
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        way = "mangling relay" if self.mangled else "relay" if self.relay else "direct"
        weather = f"{self.weather.delay * 1000:.0f} ms, {self.weather.rate / 1e6:.1f} MB/s"
        return f"seed {self.seed}: {self.case}, {way}, {weather}; {'; '.join(map(str, self.faults)) or 'no fault'}"


def draw(seed: int) -> Plan:
    rng = random.Random(seed)
    case = rng.choice(list(CASES))
    relay = rng.random() < 0.3
    mangled = relay and rng.random() < 0.6
    weather = Weather(delay=rng.choice((0.0, 0.0, 0.005, 0.02)), rate=rng.choice((0.0, 0.0, 12.5e6, 1e6)))
    least = 0 if mangled else 1
    faults = tuple(_fault(rng, CASES[case], relay) for _ in range(rng.choice((least, 1, 1, 2, 2, 3))))
    return Plan(seed, case, relay, mangled, weather, faults)


def _fault(rng: random.Random, case: Case, relay: bool) -> Fault:
    kinds = KINDS | ({"kill relay": 4} if relay else {})
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    party, other = rng.sample(case.parties, 2)
    moment = rng.choice(MOMENTS)
    wait = rng.uniform(0.0, 4.0) if moment == "start" else rng.choice((0.0, rng.expovariate(20.0), rng.uniform(0, 0.5)))
    count = rng.randint(1, 2) if moment == "trees" else 1
    return Fault(kind, party, other, moment, count, wait, rng.uniform(0.0, 3.0))


class Play:
    """A plan while it happens."""

    def __init__(self, plan: Plan, made: Companies, proxies: dict[str, Proxy]) -> None:
        self.plan, self.made, self.proxies = plan, made, proxies
        self.running: dict[str, Process] = {}
        self.happened: list[str] = []
        self._ended: set[str] = set()
        self._later: list[tuple[float, Any]] = []
        self._faults, self._seen = list(plan.faults), Counter[tuple[str, str]]()
        self._due: float | None = None

    def to_its_end(self) -> None:
        """Start all parties, do what the plan says, until all have ended well."""
        if self.plan.relay:
            self._start(LISTENER)
        for party in self.made.case.parties:
            self._start(party)
        until = time.monotonic() + PATIENCE
        while set(self.made.case.parties) - self._ended:
            assert time.monotonic() < until, f"{self.plan}\nhangs; {self.happened}\n{self.made.told()}"
            self._look()
            self._do_what_is_due()
            time.sleep(0.005)

    def _look(self) -> None:
        for party, process in list(self.running.items()):
            code = process.popen.poll()
            if code is None:
                continue
            assert code == 0, f"{self.plan}\n{party} ended with {code}; {self.happened}\n{self.made.told()}"
            self._ended.add(party)
            del self.running[party]

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        due = [each for each in self._later if each[0] <= now]
        self._later = [each for each in self._later if each[0] > now]
        for _, work in due:
            work()
        if not self._faults:
            return
        fault = self._faults[0]
        if self._due is None and self._comes(fault):
            self._due = now + fault.wait
        if self._due is not None and self._due <= now:
            self._due = None
            self._faults.pop(0)
            self._happen(fault)

    def _comes(self, fault: Fault) -> bool:
        """Whether the moment of the next fault has come, since the one before."""
        events = self.made.events(fault.party)
        if fault.moment == "start":
            starts = sum(each.party == fault.party for each in self.made.processes)
            return starts > self._seen[fault.party, "start"]
        if fault.moment == "trees":
            number = sum(each["event"] == "trees" and each["done"] > 0 for each in events)
        else:
            number = sum(each["event"] == fault.moment for each in events)
        if number >= self._seen[fault.party, fault.moment] + fault.count:
            self._seen[fault.party, fault.moment] = number
            return True
        return False

    def _happen(self, fault: Fault) -> None:
        self.happened.append(fault.kind)
        proxy = self.proxies.get(fault.party)
        if fault.kind == "kill relay":
            self._kill(LISTENER, fault.seconds)
        elif fault.kind.startswith("kill"):
            others = {"kill two": (fault.other,), "kill all": self.made.case.parties}.get(fault.kind, ())
            for party in {fault.party, *others}:
                self._kill(party, fault.seconds / 3)
            if fault.kind == "kill again":
                self._in(fault.seconds / 3 + 1.0 + fault.wait, lambda: self._kill(fault.party, 0.1))
        elif fault.kind == "stop":
            self._stop(fault.party, fault.seconds)
        elif fault.kind == "slow":
            for each in self.proxies.values():
                each.weather.delay, each.weather.rate = 0.1, 0.2e6
        else:  # the listener's own connections are those of all others
            for each in [proxy] if proxy else self.proxies.values():
                self._disturb(each, fault)

    def _disturb(self, proxy: Proxy, fault: Fault) -> None:
        weather = proxy.weather
        if fault.kind == "freeze":
            weather.frozen = True
            self._in(fault.seconds, lambda: setattr(weather, "frozen", False))
        else:
            weather.refusing = fault.kind == "partition"
            proxy.cut()
            self._in(fault.seconds, lambda: setattr(weather, "refusing", False))

    def _stop(self, party: str, seconds: float) -> None:
        process = self.running.get(party)
        if process is not None:
            process.popen.send_signal(signal.SIGSTOP)
            self._in(seconds, lambda: process.popen.send_signal(signal.SIGCONT))

    def _kill(self, party: str, pause: float) -> None:
        process = self.running.get(party)
        if process is not None and process.popen.poll() is None:
            process.kill()
            del self.running[party]
            self._in(pause, lambda: self._start(party))

    def _start(self, party: str) -> None:
        if party == LISTENER:
            self.running[party] = self.made.start_relay(self.plan.seed if self.plan.mangled else None)
        else:
            self.running[party] = self.made.start(party)

    def _in(self, seconds: float, work: Any) -> None:
        self._later.append((time.monotonic() + seconds, work))


@dataclass
class Result:
    """How a disturbed run went."""

    plan: Plan
    happened: list[str]
    attempts: int
    seconds: float
    different: list[str] = field(default_factory=list)


def play(plan: Plan, folder: Path, undisturbed: Undisturbed) -> Result:
    """Play a plan and compare how it ends; :class:`AssertionError` names the seed."""
    case, began = CASES[plan.case], time.monotonic()
    with _companies(plan, folder) as (made, proxies):
        played = Play(plan, made, proxies)
        played.to_its_end()
        found = end_of(made)
        draws = made.folder / DRAWS
        number = len(draws.read_text().splitlines()) - 1 if case.noisy else 0
        different = differences(found, undisturbed.of(case, number))
        attempts = sum(each["event"] == "attempt" for each in made.events(case.parties[0]))
    assert not different, f"{plan}\ndiffers in {different}; {played.happened}\n{made.told()}"
    return Result(plan, played.happened, attempts, time.monotonic() - began)


@contextmanager
def _companies(plan: Plan, folder: Path) -> Iterator[tuple[Companies, dict[str, Proxy]]]:
    case = CASES[plan.case]
    with ExitStack() as stack:
        made = stack.enter_context(companies(folder, case, relay=plan.relay))
        proxies = {}
        for party in case.parties if plan.relay else case.peers:
            weather = Weather(delay=plan.weather.delay, rate=plan.weather.rate)
            proxies[party] = stack.enter_context(Proxy(("127.0.0.1", made.port), weather))
            made.addresses[party] = f"127.0.0.1:{proxies[party].port}"
        if case.noisy:
            made.changes[case.parties[0]] = (f"noise={DRAWS}",)
        made.write_jobs()
        yield made, proxies


def _summarize(results: list[Result], runs: int, failed: list[int]) -> None:
    """Print what was disturbed, and how much it took."""
    print(f"\n{'case':22}{'runs':>5}{'faults':>8}{'attempts':>10}{'seconds':>9}")
    for case in CASES:
        of_case = [result for result in results if result.plan.case == case]
        faults = sum(len(result.happened) for result in of_case)
        attempts = sum(result.attempts for result in of_case)
        seconds = sum(result.seconds for result in of_case)
        print(f"{case:22}{len(of_case):5d}{faults:8d}{attempts:10d}{seconds:9.0f}")
    happened = Counter(kind for result in results for kind in result.happened)
    happened["mangling relay"] = sum(result.plan.mangled for result in results)
    print(f"\n{'fault':22}{'times':>5}")
    for kind, count in sorted(happened.items()):
        print(f"{kind:22}{count:5d}")
    print(
        f"\n{len(results)} of {runs} runs ended as if nobody had disturbed them; seeds of the others: {failed or '-'}"
    )


def main() -> None:
    runs, seed = int(sys.argv[1]), int(sys.argv[2])
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp(prefix="labelward-chaos-"))
    undisturbed, failed, results = Undisturbed(folder / "undisturbed"), [], []
    for number in range(seed, seed + runs):
        plan = draw(number)
        try:
            result = play(plan, folder / str(number), undisturbed)
        except AssertionError as error:
            failed.append(number)
            print(f"FAILED {error}\nleft in {folder / str(number)}", flush=True)
            continue
        results.append(result)
        shutil.rmtree(folder / str(number))
        print(f"{result.seconds:5.1f} s  {result.attempts} attempts  {plan}; happened: {result.happened}", flush=True)
    _summarize(results, runs, failed)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
