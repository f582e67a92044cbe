"""Defaults of the engine interface, and parameters of an engine's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import pytest

from labelward.errors import InputError
from labelward.federation.simulation import insecure_reasons
from labelward.he import ENGINES, CiphertextFormat, Engine, EngineParameters, Layout, NullEngine, engine
from labelward.he.paillier import PaillierEngine
from labelward.he.plain import PlainEngine
from labelward.job import EncryptionSection, parse_job
from refusals import refused


@dataclass(frozen=True, kw_only=True)
class _Parameters(EngineParameters):
    ring: Annotated[int, msgspec.Meta(ge=1024)] = 4096
    noise: float = 3.2


class KeylessEngine(PlainEngine):
    """A secure engine without key sizes, as far as this test can tell."""

    name: ClassVar[str] = "keyless"
    secure: ClassVar[bool] = True
    Parameters: ClassVar[type[EngineParameters]] = _Parameters


@pytest.fixture
def keyless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "keyless", f"{__name__}:KeylessEngine")


def test_a_secure_engine_without_key_sizes_is_secure() -> None:
    section = EncryptionSection(engine="keyless")
    assert insecure_reasons(KeylessEngine(), section) == ()
    assert KeylessEngine().key_bits(2048) == 0


@pytest.mark.parametrize(
    ("made", "bits", "reason"),
    [
        (PlainEngine(), 2048, "plain engine"),
        (NullEngine(), 2048, ""),
        (PaillierEngine(kernel="gmpy2"), 512, "512-bit key"),
        (PaillierEngine(kernel="gmpy2"), 2048, ""),
        (KeylessEngine(), 512, ""),
    ],
)
def test_reasons_are_what_views_hold(made: Engine, bits: int, reason: str) -> None:
    assert made.insecure_reason(bits) == reason


@pytest.mark.parametrize("bounds", [(1,), (5, 7), (2**30,) * 3, (2**40,) * 7])
def test_the_counted_format_is_that_of_the_formula(bounds: tuple[int, ...]) -> None:
    made, layout = PaillierEngine(kernel="gmpy2"), Layout(bounds, 300, 1)
    counted, formula = Engine.ciphertext_format(made, layout, 256), made.ciphertext_format(layout, 256)
    assert (counted.size, sorted(counted.fits)) == (formula.size, sorted(formula.fits))


def test_a_format_counts_ciphertexts() -> None:
    form = CiphertextFormat(size=64, fits=(3, 2))
    assert (form.parts, [form.sealed(sums) for sums in (0, 1, 3, 4)]) == (2, [0, 2, 3, 4])


def test_the_work_of_sums() -> None:
    groups = np.array([[0, 1], [0, -1], [2, 1], [0, 0]], dtype=np.int32)
    assert PlainEngine().additions(groups, 3) == (3, 3.0)


def test_parameters_reach_the_engine(keyless: None) -> None:
    assert engine("keyless", parameters={"ring": 2048}).parameters == _Parameters(ring=2048)
    assert engine("keyless").parameters == _Parameters()
    assert engine("keyless").describe()["parameters"] == {"ring": 4096, "noise": 3.2}


@pytest.mark.parametrize(
    ("given", "code", "field", "value"),
    [
        ({"rings": 2048}, "unknown", "[encryption.keyless]", "rings"),
        ({"ring": 16}, "range", "[encryption.keyless] ring", 16),
        ({"ring": "large"}, "type", "[encryption.keyless] ring", "large"),
        ({"noise": True}, "type", "[encryption.keyless] noise", True),
    ],
)
def test_wrong_parameters_are_refused(keyless: None, given: dict[str, Any], code: str, field: str, value: Any) -> None:
    with refused(InputError, code, field=field, value=value):
        engine("keyless", parameters=given)


def test_an_engine_without_parameters_takes_none() -> None:
    with refused(InputError, "unknown", field="[encryption.plain]", value="x"):
        engine("plain", parameters={"x": 1})


JOB = """
[data]
table = "breast_cancer"
[parties]
active = 0.5
telco = 0.5
[encryption]
engine = "keyless"
[encryption.keyless]
ring = 2048
"""


def test_parameters_are_a_table_of_the_job(keyless: None) -> None:
    from labelward.federation.components import with_defaults

    job = parse_job(JOB)
    assert job.encryption.engine_parameters == {"ring": 2048}
    assert parse_job(job.to_toml()) == job
    assert job.shared()["encryption.keyless.ring"] == 2048
    assert with_defaults(job).encryption.engine_parameters == {"ring": 2048, "noise": 3.2}
    assert not [key for key in parse_job(JOB.partition("[encryption]")[0]).shared() if key.count(".") > 1]


def test_parameters_of_another_engine_are_refused() -> None:
    with refused(InputError, "unknown", field="[encryption.keyless]", value="keyless"):
        parse_job(JOB.replace('engine = "keyless"', ""))
