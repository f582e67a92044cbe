"""What a split network sends and what its views will hold, before it is trained.

Embeddings and gradients are arrays of a known shape, so that their bytes follow from the job: rows × numbers × epochs ×
bytes of a number. Headers, some dozens of bytes a message, are left out. The time of a network is that of its modules,
and is not estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labelward.job import Job
from labelward.planning.workload import RemoteShape, Workload, plan_run
from labelward.protocols.splitnn.params import SplitNet

_PLACE_BYTES = 4
"""Of a row's place in the order of an epoch, which each party observes."""


@dataclass(frozen=True, kw_only=True)
class NetTraffic:
    """Bytes of arrays of one training, at most: early stopping may take fewer epochs.

    Attributes:
        rows, validation, test: how many there are.
        numbers: in a row's embedding, by passive party; 0 where a module that is handed in decides.
        embeddings: sent to the active party in training, validation rows included, by passive party.
        gradients: returned, by passive party.
        predictions: embeddings of the test rows, by passive party.
        views: of each party, the active one first: what it receives, the orders of the rows, and with ``record =
            "epochs"`` a passive party's own embeddings.
    """

    dataset: str
    variant: str
    rows: int
    validation: int
    test: int
    epochs: int
    numbers: Mapping[str, int]
    embeddings: Mapping[str, int]
    gradients: Mapping[str, int]
    predictions: Mapping[str, int]
    views: Mapping[str, int]


def estimate_traffic(
    job: Job, *, seed: int | None = None, variant: str | None = None, remote: RemoteShape | None = None
) -> NetTraffic:
    """Return the bytes of one training of a split network, without training it.

    Args:
        job: as it was read.
        seed: of the run; None for the job's first.
        variant: slug of one of ``job.variants()``; None for the undefended run.
        remote: the shape of tables that are not here.

    Raises:
        InputError: of any kind, as training the job would; or for another model.
    """
    run = plan_run(job, SplitNet, "is no split network", seed=seed, variant=variant, remote=remote)
    return _traffic(run.job, run.params, run.workload, run.variant)


def _traffic(job: Job, params: SplitNet, workload: Workload, variant: str) -> NetTraffic:
    data, own_item = workload.data, 8 if params.dtype == "float64" else 4
    item = 2 if params.wire_dtype == "float16" else own_item
    rows, classes = data.rows, len(data.labels.classes)
    outputs = 1 if params.loss == "logistic" else max(classes, 1)
    width = params.bottom_outputs(outputs)
    passive = [party.name for party in job.passive]
    trained = item * rows * width * params.epochs
    validated = item * data.validation * width * params.epochs
    predicted = item * data.test * width
    order, kept = _PLACE_BYTES * rows * params.epochs, job.run.record != "digests"
    own = own_item * rows * width * params.epochs if job.run.record == "epochs" else 0
    received = len(passive) * (trained + validated + predicted)
    return NetTraffic(
        dataset=workload.dataset,
        variant=variant,
        rows=rows,
        validation=data.validation,
        test=data.test,
        epochs=params.epochs,
        numbers=dict.fromkeys(passive, width),
        embeddings=dict.fromkeys(passive, trained + validated),
        gradients=dict.fromkeys(passive, trained),
        predictions=dict.fromkeys(passive, predicted),
        views={
            job.active.name: order + kept * received,
            **dict.fromkeys(passive, order + kept * (trained + own)),
        },
    )
