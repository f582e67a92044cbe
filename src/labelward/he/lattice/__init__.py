"""Encrypted grouped sums by ring-LWE; ``README.md`` in this folder has the reading order.

References: V. Lyubashevsky, C. Peikert, O. Regev, *On Ideal Lattices and Learning with Errors over Rings*, EUROCRYPT
2010; J. Fan, F. Vercauteren, *Somewhat Practical Fully Homomorphic Encryption*, 2012 (scale and rounding); H. Chen,
W. Dai, M. Kim, Y. Song, *Efficient Homomorphic Conversion Between (Ring) LWE Ciphertexts*, ACNS 2021 (packing, in
another way).
"""

from labelward.he.lattice.engine import LatticeEngine

__all__ = ["LatticeEngine"]
