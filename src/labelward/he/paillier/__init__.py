"""Paillier's cryptosystem as an engine; ``README.md`` in this folder has the reading order.

Reference: P. Paillier, *Public-Key Cryptosystems Based on Composite Degree Residuosity Classes*, EUROCRYPT 1999,
sections 3 and 6.
"""

from labelward.he.paillier.engine import PaillierEngine

__all__ = ["PaillierEngine"]
