"""Without a top model a returned gradient tells the label (Section 3.5): what the direct attack rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from splitnets import Net, Run, blobs

from labelward.messages.splitnn import BatchGradients, EpochOrder
from labelward.protocols.splitnn.params import SplitNet


def gradients_by_row(run: Run, party: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return all gradients that a party received, with the training row of each."""
    view = run.views[party]
    rows = np.concatenate([each.rows.unpack() for each in view.observed(EpochOrder)])
    return np.concatenate([each.message.values.value.unpack() for each in view.received(BatchGradients)]), rows


@pytest.mark.parametrize("loss", ["cross_entropy", "weighted", "nll"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_only_negative_number_is_that_of_the_label(loss: Any, dtype: Any) -> None:
    parts, y = blobs(5, 150, {"bank": 3, "telco": 3}, 4)
    params = SplitNet(top=False, bottom="linear", loss=loss, dtype=dtype, epochs=2, batch_size=32)
    net = Net(parts=parts, labels=y, classes=tuple("abcd"), params=params)
    gradients, rows = gradients_by_row(net.run(), "telco")
    assert np.array_equal(gradients.argmin(1), y[rows])
    assert ((gradients < 0).sum(1) == 1).all()  # the model is unsure of every row, so that no probability rounds to 1
    assert (gradients[np.arange(len(rows)), y[rows]] < 0).all()


def test_argmin_is_exact_where_probabilities_round() -> None:
    """Sure of a row, its class's gradient rounds to 0 and no number is negative; it is still the least one.

    Only where the other classes' probabilities are 0 too, below the smallest float, does a row tell nothing.
    """
    parts, y = blobs(5, 200, {"bank": 6, "telco": 6}, 3)
    parts = {party: 4 * x for party, x in parts.items()}
    params = SplitNet(top=False, bottom="linear", epochs=2, batch_size=20, standardize=False, learning_rate=0.01)
    gradients, rows = gradients_by_row(Net(parts=parts, labels=y, classes=tuple("abc"), params=params).run(), "telco")
    telling = gradients.any(1)
    assert (telling & (gradients >= 0).all(1)).any()
    assert np.array_equal(gradients.argmin(1)[telling], y[rows][telling])


def test_all_parties_get_the_same_gradient() -> None:
    """It is that of the sum, whoever it goes to."""
    parts, y = blobs(1, 60, {"bank": 0, "telco": 3, "shop": 2}, 2)
    net = Net(parts=parts, labels=y, params=SplitNet(top=False, bottom="linear", epochs=1, batch_size=16))
    run = net.run()
    assert np.array_equal(gradients_by_row(run, "telco")[0], gradients_by_row(run, "shop")[0])
