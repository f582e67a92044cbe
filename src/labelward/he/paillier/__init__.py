"""Paillier's cryptosystem.

========== ==============================================================================================
module     what it holds
========== ==============================================================================================
primes     primes whose p-1 is factored, and bases of full order
packing    the k numbers of a row as one signed plaintext; several sums in one ciphertext
fixedbase  powers of one base by tables
kernels    encrypting, obfuscating and decrypting, with and without the secret
kernel     what a kernel does, and which one runs here
gmp        the kernel on gmpy2
ifma       the kernel on AVX-512 IFMA: ``ifma_ir`` has its products and ``ifma_moves`` what moves numbers between
           lanes, in LLVM's language; ``ifma_limbs``, ``ifma_loops`` and ``ifma_sums`` the compiled loops around
           them; ``ifma_numbers``, ``ifma_powers`` and ``ifma_rows`` moduli, tables and encrypted rows, which
           ``ifma_lists`` sorts
libgmp     the kernel on GMP's functions for limbs: ``libgmp_load`` finds and checks them, ``libgmp_ir`` calls them from
           compiled code, ``libgmp_limbs`` and ``libgmp_loops`` are the loops, ``libgmp_numbers`` moduli and tables
threads    work in threads
numbers    integers as bytes
joint      which columns are summed together, for fewer products; ``joint_loops`` counts for it
rooms      memory for prepared rows, and disk beyond a limit
prepared   encryptions of zero that are made beside other work
tasks      the units of work, run here or in a worker process
pool       worker processes; ``worker`` is their program
keys       the contract's keys
sums       the contract's encrypted rows and sums
engine     the engine
========== ==============================================================================================

Reference: P. Paillier, *Public-Key Cryptosystems Based on Composite Degree Residuosity Classes*, EUROCRYPT 1999,
sections 3 and 6 (g = n+1; decryption by Chinese remainders). Security rests on the decisional composite residuosity
assumption for the moduli that :mod:`~labelward.he.paillier.primes` makes, and on no other.

Limit: no kernel runs in constant time; who can measure the owner's machine is outside the setting.
"""

from labelward.he.paillier.engine import PaillierEngine

__all__ = ["PaillierEngine"]
