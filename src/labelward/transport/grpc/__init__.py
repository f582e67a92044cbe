"""Parties as processes on machines of their own: gRPC over mutual TLS, sealed end to end, nothing lost.

Loads ``grpc`` and ``cryptography`` only when a :class:`Network` is made.
"""

from labelward.transport.grpc.diagnose import Probe, probe
from labelward.transport.grpc.endpoint import Endpoint, PeerInfo
from labelward.transport.grpc.network import Network
from labelward.transport.grpc.relay import Relay, serve_relay

__all__ = ["Endpoint", "Network", "PeerInfo", "Probe", "Relay", "probe", "serve_relay"]
