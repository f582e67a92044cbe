"""What defenses of returned gradients share that read the classes of a batch's rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.net_points import ReturnedGradient


def check_classes(policy: Policy, setup: PolicyContext) -> None:
    """Refuse quantities, and a policy that must not read labels because of the account of one before it.

    Raises:
        PolicyError: names both.
    """
    if not setup.classes:
        raise PolicyError(
            "needs labels that are classes", code="inapplicable", field=f"defense {policy.kind!r}", value=0
        )
    for other in setup.chain:
        if other is policy:
            return
        if other.promise is not None and not other.label_private:
            raise PolicyError(
                f"reads labels, which nothing may do behind the account of {other.kind!r}; put it before",
                code="inapplicable",
                field=f"defense {policy.kind!r}",
                value=other.kind,
            )


def known_classes(policy: Policy, returned: ReturnedGradient) -> NDArray[np.int64]:
    """Return the class numbers of a batch, int64 [rows]; :class:`PolicyError` if they may not be read, or are none."""
    if not returned.classes or np.isnan(returned.targets).any() or len(returned.embeddings) != len(returned.values):
        raise PolicyError(
            f"defense {policy.kind!r} needs embeddings and classes of the rows", code="cannot-act", value=policy.kind
        )
    return returned.targets.astype(np.int64)
