"""gRPC transport between processes on different machines: mutual TLS, end-to-end encryption, lossless delivery.

Loads ``grpc`` and ``cryptography`` only when a :class:`Network` is created. ``README.md`` gives the reading order.
"""

from labelward.transport.grpc.diagnose import ListenerDiagnosis, diagnose_listener
from labelward.transport.grpc.endpoint import Endpoint, PeerInfo
from labelward.transport.grpc.network import Network
from labelward.transport.grpc.relay import Relay, serve_relay

__all__ = ["Endpoint", "ListenerDiagnosis", "Network", "PeerInfo", "Relay", "diagnose_listener", "serve_relay"]
