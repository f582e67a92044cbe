"""The engine of protocols that encrypt nothing, such as split networks."""

from typing import Any, ClassVar

from labelward.errors import EncryptionError
from labelward.he.base import Engine, PrivateKey, PublicKey, PublicMaterial
from labelward.rng import SecureRandom


class NullEngine(Engine):
    """Placeholder for an engine where nothing is encrypted: whoever receives a message can read all of it."""

    name: ClassVar[str] = "none"
    secure: ClassVar[bool] = False
    bits_offered: ClassVar[tuple[int, ...]] = ()

    def generate(self, bits: int, *, protection: SecureRandom, insecure: bool = False) -> PrivateKey:
        """Refuse."""
        raise EncryptionError("engine 'none' makes no keys", code="unsupported", value="none")

    def public(self, material: PublicMaterial, *, protection: SecureRandom, insecure: bool = False) -> PublicKey:
        """Refuse."""
        raise EncryptionError("engine 'none' has no keys", code="unsupported", value="none")

    def security_level(self, bits: int) -> int:
        """Return 0."""
        return 0

    def insecure_reason(self, bits: int) -> str:
        """Return nothing: the protocol hides nothing from those who receive its messages."""
        return ""

    def describe(self) -> dict[str, Any]:
        """Return nothing."""
        return {}
