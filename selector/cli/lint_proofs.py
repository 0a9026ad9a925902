"""What `attn-select lint` finds by proof, if the solver is installed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selector.analysis.findings import Finding
    from selector.catalog import Catalog

__all__ = ["Proofs", "proofs"]


class Proofs:
    """Findings to show, findings that comments allow, the packs that were proved, and what is missing to prove any."""

    def __init__(self) -> None:
        self.shown: list[Finding] = []
        self.allowed: list[Finding] = []
        self.done: list[str] = []
        self.missing: str | None = None


def proofs(catalogs: Iterable[tuple[Catalog, str | None]]) -> Proofs:
    """All findings of catalogs; of one file of a catalog where one is named."""
    from selector.analysis.allow import sift
    from selector.analysis.encoder import AnalysisMissing, z3_module
    from selector.analysis.lint import lint

    found = Proofs()
    try:
        z3_module()
    except AnalysisMissing as error:
        found.missing = str(error)
        return found
    for catalog, only in catalogs:
        files = {p.at.file for p in catalog.packs} | {m.at.file for m in catalog.manifests}
        files |= {f"{os.path.dirname(file)}/vocabulary.yaml" for file in files}
        kept, allowed = sift(lint(catalog), catalog.root, sorted(files))
        found.shown += [f for f in kept if only is None or os.path.basename(f.at.file) == only]
        found.allowed += [f for f in allowed if only is None or os.path.basename(f.at.file) == only]
        found.done.append(catalog.name)
    return found
