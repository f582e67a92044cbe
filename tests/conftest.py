"""Loaded before any test: its folder is importable, so that ``wiring`` is, from every folder below."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator

import pytest
from hypothesis import settings

from fixed_seeds import protection_of
from labelward.leakage import embeddings
from small_audits import finished as finished
from small_audits import job as job

# Compiled kernels make the first example of a property slow and the others fast: no example has a time limit.
# A developer's machine draws new examples in each run; CI the same in every run, so that it judges the change alone.
settings.register_profile("labelward", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("labelward")

# Rewriting the assertions of all tests takes half of the collection, in each process: kept even where Python is told to
# write no bytecode.
sys.dont_write_bytecode = False

PLOTS = {name: getattr(embeddings, name) for name in ("_PLOTTED", "_ITERATIONS")}
TORCH_SEED = int(os.environ.get("LABELWARD_TEST_SEED", "0"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector what lives as long as the process: ten thousand tests and all imported modules."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def the_same_weights_in_any_order() -> None:
    """A module made in a test draws its weights from torch's own generator, which other tests have drawn from."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(TORCH_SEED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Plot few points of embeddings but in tests of the plots: else t-SNE takes nine tenths of a small audit."""
    plotted = PLOTS if item.get_closest_marker("plots") else {"_PLOTTED": 60, "_ITERATIONS": 250}
    for name, value in plotted.items():
        setattr(embeddings, name, value)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with protection_of(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    with protection_of(f"{request.node.nodeid}/{fixturedef.argname}/{request.param_index}"):
        return (yield)
