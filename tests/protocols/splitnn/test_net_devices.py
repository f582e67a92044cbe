"""Trainings on an accelerator: attacked there, or on a machine without one."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
from splitnets import Net, blobs

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.passive_completion import PassiveCompletion
from labelward.protocols.splitnn.family import SplitNetFamily
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.share import NetShare


def attacked(device: str, elsewhere: str) -> tuple[AttackerData, np.ndarray, torch.device]:
    """Train on one device and attack a share that names another; return what the attacker has, its scores and where."""
    parts, y = blobs(0, 120, {"bank": 3, "telco": 4})
    net = Net(parts=parts, labels=y, params=SplitNet(epochs=2, batch_size=8, device=device))
    run = net.run()
    share: NetShare = run.passive["telco"].share
    named = msgspec.structs.replace(share, params={**share.params, "device": elsewhere})
    columns = AttackerData(features=parts["telco"], columns=[f"c{i}" for i in range(4)])
    own = SplitNetFamily().own(run.views["telco"], columns, named)
    known = np.concatenate([np.flatnonzero(y == label)[:6] for label in (0, 1)])
    aux = AuxiliaryKnowledge(classes=2, known_rows=known, known_labels=y[known])
    attack = PassiveCompletion(auxiliary=12, steps=20, fine_tune=True, unlabeled_weight=1.0)
    guess = attack(run.views["telco"], own, aux, rng=np.random.default_rng(0))
    return own, guess.scores, next(own.bottom().parameters()).device


def test_a_training_of_an_accelerator_is_attacked_on_a_machine_without_it():
    _, scores, device = attacked("cpu", "cuda:99")
    assert device.type == "cpu"
    np.testing.assert_array_equal(scores, attacked("cpu", "cpu")[1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_an_accelerator_the_attack_runs_there():
    own, scores, device = attacked("cuda", "cuda")
    assert device.type == "cuda"
    assert next(own.untrained().parameters()).device.type == "cuda"
    assert np.isfinite(scores).all()
