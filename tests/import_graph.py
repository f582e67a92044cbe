"""The import graph of the packages, as the architecture page draws it: ``python tests/import_graph.py`` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from test_layers import MODULES, imported, layer, name_of

Graph = dict[str, set[str]]


@cache
def import_graph() -> Graph:
    """Return what each package of labelward imports of labelward; the package itself is left out."""
    graph: Graph = {}
    for path in MODULES:
        if own := layer(name_of(path)):
            graph.setdefault(own, set()).update(layer(target) for target in imported(path))
    return {name: used - {name, ""} for name, used in graph.items() if name != "__main__"}


def reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return all packages that one imports, directly or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for used in graph[waiting.pop()] - found:
            found.add(used)
            waiting.append(used)
    return found


def direct_edges(graph: Mapping[str, set[str]]) -> Graph:
    """Return the transitive reduction of a graph without circles: the edges that no longer path implies."""
    return {
        name: {used for used in edges if not any(used in reached(graph, other) for other in edges - {used})}
        for name, edges in graph.items()
    }


def mermaid(graph: Mapping[str, set[str]]) -> str:
    """Return the reduced graph as a Mermaid diagram, one line for each package that imports others."""
    lines = [
        f"    {name} --> {' & '.join(sorted(edges))}" for name, edges in sorted(direct_edges(graph).items()) if edges
    ]
    return "\n".join(["graph BT", *lines])


if __name__ == "__main__":
    print(mermaid(import_graph()))
