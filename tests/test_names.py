"""One name, one thing: no public class or function is defined in two modules, and no package outweighs the others."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import labelward

ROOT = Path(labelward.__file__).parent
PRESCRIBED = {"backend": "he.paillier.backends", "unavailable_reason": "he.paillier.backends"}
"""Names that an interface prescribes for each of its modules, and the package of these modules."""
LARGEST_SHARE = 0.15
OLD_FILES = {
    *(
        "attacks/contract",
        "attacks/visible",
        "attacks/refine",
        "attacks/direct",
        "cli/start",
        "cli/_guard",
        "cli/_voice",
    ),
    *("data/held", "data/misfits", "data/own", "data/prepare", "data/rows", "data/constraints", "data/partition"),
    *("defenses/keyed", "he/contract", "he/_checks", "job/kinds", "job/_check", "kernels/numbers", "kernels/scan"),
    *("kernels/signatures", "kernels/unions", "kernels/walk", "kernels/gradients", "messages/setup", "party/chain"),
    *("party/outgoing", "party/policy", "party/local", "party/purged", "report/evidence", "report/sentences"),
    *("report/explained", "report/figures", "report/numbers", "report/meter", "report/expected", "report/stored"),
    *("testing/sums", "transport/grpc/agreement", "transport/grpc/link", "transport/grpc/station"),
    *("transport/grpc/probe", "transport/grpc/records", "transport/certificates/read", "transport/certificates/trust"),
}
"""Names of files that said nothing of what is in them."""


MODULES = {path.relative_to(ROOT).with_suffix("").as_posix(): path for path in sorted(ROOT.rglob("*.py"))}


def test_no_public_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                places[node.name].append(module.replace("/", "."))
    twice = {
        name: found
        for name, found in places.items()
        if len(found) > 1 and not all(each.startswith(PRESCRIBED.get(name, "none")) for each in found)
    }
    assert not twice


def test_no_file_has_an_old_name() -> None:
    assert not OLD_FILES & set(MODULES)
    assert not (ROOT / "evaluate").exists()
    assert not (ROOT / "protocols" / "tree").exists()


def test_no_package_holds_more_than_its_share() -> None:
    """``protocols`` is the place of all families: each of these is a package of its own."""
    lines: dict[str, int] = defaultdict(int)
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).parts
        lines["/".join(parts[: 2 if parts[0] == "protocols" else 1])] += len(path.read_text().splitlines())
    total = sum(lines.values())
    assert {name: size for name, size in lines.items() if size > LARGEST_SHARE * total} == {}
