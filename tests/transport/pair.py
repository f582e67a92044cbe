"""Two stations of one process, with nothing but two queues between them."""

from __future__ import annotations

from collections import deque

from loopback import RUN, Log, credentials, endpoint

from labelward.transport.grpc.attempt import NetworkEnd
from labelward.transport.grpc.node import Node

TWO = ("bank", "telco")
NAME = bytes(20)


class Pair:
    """Two stations with nothing but two queues between them, in the midst of an attempt."""

    def __init__(self) -> None:
        self.nodes = {party: Node(endpoint(party, TWO, 1), credentials(party), RUN, Log()) for party in TWO}
        self.wire: dict[str, deque[bytes]] = {party: deque() for party in TWO}
        self.said: list[bytes] = []
        for party, node in self.nodes.items():
            node.post = lambda raw, party=party: self.wire[party].append(raw)  # type: ignore[misc]
        for node in self.nodes.values():
            node.tick()
        self.carry()
        incarnations = {party: node.incarnation for party, node in self.nodes.items()}
        self.ends = {}
        for party, node in self.nodes.items():
            self.ends[party] = NetworkEnd(node, node.begin(NAME, incarnations))
        for number in range(5):
            self.ends["bank"].send("telco", b"from the bank %d" % number)
            self.ends["telco"].send("bank", b"from telco %d" % number)
        self.carry()
        for party in TWO:
            for _ in range(5):
                assert self.ends[party].receive(0.0)

    def carry(self) -> None:
        """Bring everything to where it should go."""
        while any(self.wire.values()):
            for party, queue in self.wire.items():
                other = TWO[party == TWO[0]]
                while queue:
                    raw = queue.popleft()
                    if other == "telco":
                        self.said.append(raw)
                    self.nodes[other].deliver(raw)

    def check(self) -> None:
        """What is real still gets through, and nothing else has."""
        for number in range(3):
            self.ends["bank"].send("telco", b"still %d" % number)
        for _ in range(3):
            self.carry()
            for node in self.nodes.values():
                for peer in node.peers.values():
                    assert peer.session is not None
                    peer.session.control(ask=True)  # a heartbeat
        self.carry()
        for number in range(3):
            assert self.ends["telco"].receive(0.0) == ("bank", b"still %d" % number)
        assert self.ends["telco"].receive(0.0) is None
        assert self.ends["bank"].receive(0.0) is None
