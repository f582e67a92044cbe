"""Every engine of the registry passes the shipped suite; a wrong one does not."""

from __future__ import annotations

from labelward.he import Engine, engine
from labelward.testing.engines import EngineContract


class TestPlain(EngineContract):
    insecure = True

    @classmethod
    def make(cls) -> Engine:
        return engine("plain")


class TestPaillier(EngineContract):
    bits, insecure = 512, True

    @classmethod
    def make(cls) -> Engine:
        return engine("paillier")
