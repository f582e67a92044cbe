"""The network transport keeps what every transport keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from loopback import networks, together

from labelward.testing.transports import TransportContract
from labelward.transport.base import Transport

pytestmark = pytest.mark.network


class TestNetwork(TransportContract):
    patience = 30.0

    @contextmanager
    def connected(self, parties: tuple[str, ...]) -> Iterator[dict[str, Transport]]:
        with networks(parties) as made:
            yield together(**{party: made[party].attempt for party in parties})
