"""From files to a catalog: read, validated, merged, decoded; every fault of every file is reported at once.

What was validated before and kept (`selector.catalog`) is only decoded again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from selector import sources
from selector.catalog import Catalog, base_of
from selector.conditions import accepted_ids
from selector.errors import Fault, ManifestError, Mark
from selector.locations import VARIABLE, display_name, manifests_root
from selector.manifest import Manifest, decode_manifest
from selector.pack import Pack, decode_pack
from selector.policies import too_many
from selector.program import Program
from selector.vocabulary import Axis, Vocabulary, nearest
from selector.vocabulary_check import clashes

if TYPE_CHECKING:
    from selector.document import Document

__all__ = ["Loader"]

#: Candidates that refer to each other (`accepts`, `use`), one after the other.
LONGEST = 32
#: Those of them that also adjust requests: each asks with a request of its own, so the questions multiply.
ADJUSTING = 2
#: Packs that nobody knows after which no further one is looked for.
UNKNOWN = 5
#: Unknown names after which the nearest one is no longer looked for; a screen shows fewer.
HINTS = 50

_OVERRIDES = (
    "values",
    "aliases",
    "default",
    "applies_when",
    "doc",
    "title",
    "undeclared",
    "words",
    "variable",
)


class Loader:
    """Reads what makes a catalog.

    Arguments:
        root: the manifests directory.
        contents: the bytes of all files by path, where they were read already; else they are read from the disk.
        documents: the files as they were validated before, by path; nothing is read or validated then.
        folders: the packs' directories that go with ``documents``.
        vocabulary: the merged vocabulary that goes with them.
    """

    def __init__(
        self,
        root: str,
        contents: Mapping[str, bytes] | None = None,
        *,
        documents: Mapping[str, Document] | None = None,
        folders: Sequence[str] | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.root, self.contents, self.folders = root, contents, folders
        self.documents: dict[str, Document] = dict(documents or {})
        self.known = vocabulary
        self.faults: list[Fault] = []
        self.texts: dict[str, str] = {}
        self.refused: dict[str, Document] = {}  # what was read and did not pass its schema
        self.lost = False  # whether some manifest is so broken that its names are not known
        self.schemas: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None

    def base(self) -> Vocabulary:
        """The vocabulary without any pack's additions."""
        document = self.read(os.path.join(self.root, "vocabulary.yaml"), "vocabulary", {})
        if document is None:
            raise ManifestError(self.faults)
        found = self.vocabulary([document])
        self.check()
        return found

    def check(self) -> None:
        if any(f.severity == "error" for f in self.faults):
            raise ManifestError(self.faults)

    def read(self, path: str, kind: str, vocabulary_raw: Mapping[str, Any]) -> Document | None:
        """One file that has passed its schema; its faults are kept, and None is returned then."""
        if self.known is not None:
            return self.documents[path]
        from selector.validate import validate
        from selector.yaml_loader import load_file, load_text

        name = display_name(path, self.root)
        try:
            document = (
                load_file(path, name) if self.contents is None else load_text(self.contents[path], name)
            )
        except ManifestError as error:
            self.faults.extend(error.faults)
            return None
        self.texts[os.path.relpath(path, self.root)] = document.text
        faults = validate(document, self.schema(kind, vocabulary_raw))
        self.faults.extend(faults)
        if not any(f.severity == "error" for f in faults):
            self.documents[path] = document
            return document
        self.refused[path] = document
        return None

    def names_in(self, folder: str) -> list[str]:
        """The names of a directory's files, sorted."""
        given: Mapping[str, object] | None = self.documents if self.known is not None else self.contents
        if given is None:
            return sorted(os.listdir(folder))
        return sorted(os.path.basename(path) for path in given if os.path.dirname(path) == folder)

    def schema(self, kind: str, vocabulary_raw: Mapping[str, Any]) -> Any:
        """The schema of one kind of file; built once a vocabulary."""
        from selector.schema_build import build, vocabulary_schema

        if kind == "vocabulary":
            return vocabulary_schema()
        if self.schemas is None or self.schemas[0] is not vocabulary_raw:
            self.schemas = (vocabulary_raw, build(vocabulary_raw))
        return self.schemas[1][kind]

    def vocabulary(self, documents: list[Document]) -> Vocabulary:
        """The merged vocabulary of the base file and the packs' additions."""
        merged: dict[str, Any] = {}
        owners: dict[str, Document] = {}
        for document in documents:
            data: Any = document.data
            for name, entry in data["axes"].items():
                if name not in merged and "type" not in entry:
                    near = nearest(name, merged)
                    advice = f"did you mean {near}?" if near else "a new axis says what type it has"
                    self.faults.append(
                        document.fault(("axes", name), f"no axis is called {name!r}", advice, key=True)
                    )
                elif name not in merged:
                    merged[name] = entry
                    owners[name] = document
                elif "type" in entry and entry["type"] != merged[name]["type"]:
                    self.faults.append(
                        document.fault(
                            ("axes", name, "type"),
                            f"axis {name} is there already, of type {merged[name]['type']}",
                        )
                    )
                else:
                    merged[name] = _merge_axis(merged[name], entry)
        marks = {n: d.mark(("axes", n), key=True) for n, d in owners.items()}
        packs = {
            n: os.path.basename(os.path.dirname(d.name)) for n, d in owners.items() if d is not documents[0]
        }
        try:
            vocabulary = Vocabulary({"vocabulary": 1, "axes": merged}, packs=packs, marks=marks)
        except ValueError:
            self.defaults(merged, documents)
            raise ManifestError(self.faults) from None
        if vocabulary.cycle:
            first = vocabulary.cycle[0]
            self.faults.append(
                owners[first].fault(
                    ("axes", first), f"axes depend on each other in a circle: {', '.join(vocabulary.cycle)}"
                )
            )
        for clash in clashes(vocabulary):
            self.faults.append(
                owners[clash.axis].fault(
                    ("axes", clash.axis, *clash.path), clash.message, clash.hint, key=not clash.path
                )
            )
        self.check()  # a program of clashing axes would only repeat what is said
        probe = Program(vocabulary, ())
        for name, path, message, hint in probe.problems:
            self.faults.append(owners[name].fault(("axes", name, *path), message, hint))
        return vocabulary

    def defaults(self, merged: Mapping[str, Any], documents: Sequence[Document]) -> None:
        """A fault for every axis whose default it cannot have, where the default is given."""
        for name, entry in merged.items():
            try:
                Axis(name, entry, 0, None, None)
            except ValueError as error:
                said: list[Any] = [document.data for document in documents]
                place = max(k for k, data in enumerate(said) if "default" in (data["axes"].get(name) or {}))
                message = f"the default of {name}: {error}"
                hint = getattr(error, "hint", None)
                self.faults.append(documents[place].fault(("axes", name, "default"), message, hint))

    def load(self, names: tuple[str, ...]) -> Catalog:
        """The catalog of some packs. Raises ManifestError with every fault of every file."""
        folders = self.folders
        if folders is None:
            folders = []
            for name in names:
                folders.append(self.folder(name))
                if len(self.faults) == UNKNOWN:  # each is looked for among all installed distributions
                    break
        self.check()
        vocabulary = self.known if self.known is not None else self.merged(folders)
        packs: list[Pack] = []
        manifests: list[Manifest] = []
        pending: list[Document] = []
        for folder in folders:
            document = self.read(os.path.join(folder, "pack.yaml"), "pack", vocabulary.raw)
            if document is not None:
                pending.append(document)
            name = os.path.basename(folder)
            if document is not None and isinstance(document.data, dict):
                name = str(document.data["name"])
            manifests.extend(self.manifests(folder, name, vocabulary))
        self.twice(manifests)
        known = {
            n: None for m in manifests for n in (m.name, *(c.id for c in m.candidates if not c.abstract))
        }
        if self.lost:  # names of manifests that could not be read would all be "unknown"
            raise ManifestError(self.faults)
        for document in pending:
            pack, faults = decode_pack(document, vocabulary, lambda: known)
            self.faults.extend(faults)
            packs.append(pack)
        self.faults.extend(too_many(packs))
        self.references(manifests)
        self.check()
        return Catalog(vocabulary, packs, manifests, _content_hash(self.texts), self.root)

    def merged(self, folders: Iterable[str]) -> Vocabulary:
        """The vocabulary with the packs' additions."""
        base_path = os.path.join(self.root, "vocabulary.yaml")
        documents = [d for d in [self.read(base_path, "vocabulary", {})] if d is not None]
        for folder in folders:
            if "vocabulary.yaml" in self.names_in(folder):
                document = self.read(os.path.join(folder, "vocabulary.yaml"), "vocabulary", {})
                if document is not None:
                    documents.append(document)
        self.check()
        data = None if self.contents is None else self.contents[base_path]
        if len(documents) > 1 or data is None:
            vocabulary = self.vocabulary(documents)
        else:
            vocabulary = base_of(self.root, data, lambda: self.vocabulary(documents))
        self.check()
        return vocabulary

    def folder(self, name: str) -> str:
        """The directory of a pack given by name, by path, or by an installed distribution."""
        found = sources.pack_folder(name, self.root)
        if found is not None:
            return found
        if os.sep in name or name in (".", ".."):
            path = os.path.abspath(name)
            self.faults.append(Fault(Mark(path, 0, 0), "", "no pack here: there is no pack.yaml", None, None))
            return path
        path = os.path.join(self.root, name)
        known = [*sources.pack_names(self.root), *sources.installed_packs()]
        near = nearest(name, known)
        hint = f"did you mean {near}?" if near else f"packs here: {', '.join(known) or 'none'}"
        if not os.path.isdir(self.root):
            named = os.environ.get(VARIABLE) and self.root == manifests_root()
            hint = (
                f"{VARIABLE} names {self.root}, which is no directory"
                if named
                else f"{self.root} is no directory"
            )
        self.faults.append(Fault(Mark(path, 0, 0), "", f"no pack is called {name!r}", hint, None))
        return path

    def manifests(self, folder: str, pack: str, vocabulary: Vocabulary) -> list[Manifest]:
        found = []
        for name in self.names_in(folder):
            if not sources.is_manifest(name):
                continue
            path = os.path.join(folder, name)
            document = self.read(path, "manifest", vocabulary.raw)
            rest = self.rest(path, vocabulary) if document is None else document
            if rest is None:
                self.lost = True
                continue
            manifest, faults = decode_manifest(rest, vocabulary, pack, partial=document is None)
            self.faults.extend(faults)
            found.append(manifest)
        return found

    def rest(self, path: str, vocabulary: Vocabulary) -> Document | None:
        """What can still be judged of a manifest that its schema refused."""
        from selector.salvage import salvage

        document = self.refused.get(path)
        return None if document is None else salvage(document, self.schema("manifest", vocabulary.raw))

    def twice(self, manifests: list[Manifest]) -> None:
        seen: dict[str, Manifest] = {}
        for manifest in manifests:
            if manifest.name in seen:
                self.faults.append(
                    Fault(
                        manifest.at,
                        "name",
                        f"backend {manifest.name!r} is there already: {seen[manifest.name].at}",
                    )
                )
            seen[manifest.name] = manifest

    def references(self, manifests: list[Manifest]) -> None:
        """`accepts` and `use` name candidates that are there, and not in a circle."""
        ids = {c.id for m in manifests for c in m.candidates}
        for manifest in manifests:
            for candidate in manifest.candidates:
                for rule in candidate.rules:
                    for name in rule.accepts():
                        self.reference(name, ids, rule.at)
                for adjustment in candidate.adjust:
                    for name in (*accepted_ids(adjustment.when), *filter(None, (adjustment.use,))):
                        self.reference(name, ids, adjustment.at)
        candidates = [c for m in manifests for c in m.candidates]
        edges: dict[str, dict[str, Mark]] = {}
        several: dict[str, dict[str, Mark]] = {}
        for c in candidates:
            asked = {n: r.at for r in c.rules for n in r.accepts()}
            asked.update((n, a.at) for a in c.adjust for n in accepted_ids(a.when))
            edges[c.id] = {**asked, **{a.use: a.at for a in c.adjust if a.use is not None}}
            several[c.id] = asked if c.adjust else {}
        before = len(self.faults)
        self.circles(edges)
        if len(self.faults) == before:
            self.chains(edges, LONGEST, "refers to a candidate that refers to another, and so on")
            self.chains(several, ADJUSTING, "adjusts requests and asks one that does so too, and so on")

    def circles(self, edges: Mapping[str, Mapping[str, Mark]]) -> None:
        """A fault for every place through which the answer about a candidate depends on that answer."""
        for start, named in edges.items():
            for name, at in named.items():
                if start in _reached(name, edges):
                    way = f"{name}, and {name} on {start}" if name != start else "itself"
                    fault = Fault(at, "", f"{start} depends on {way}: a circle")
                    if fault not in self.faults:
                        self.faults.append(fault)

    def chains(self, edges: Mapping[str, Mapping[str, Mark]], longest: int, said: str) -> None:
        """A fault where candidates refer to each other one after the other, more than ``longest`` times."""
        left = set(edges)
        for _ in range(longest + 1):
            left = {start for start in left if not left.isdisjoint(edges[start])}
        if left:
            start = next(name for name in edges if name in left)
            at = min(edges[start].values())
            message = f"{start} {said}: more than {longest} in a row"
            self.faults.append(Fault(at, "", message, "name the last of them instead"))

    def reference(self, name: str, ids: set[str], at: Mark) -> None:
        if name not in ids:
            near = nearest(name, ids) if len(self.faults) < HINTS else None
            fault = Fault(
                at, "", f"no candidate is called {name!r}", f"did you mean {near}?" if near else None
            )
            if fault not in self.faults:
                self.faults.append(fault)


def _reached(start: str, edges: Mapping[str, Mapping[str, Mark]]) -> set[str]:
    """``start`` and all that can be reached from it."""
    found, pending = {start}, [start]
    while pending:
        fresh = [n for n in edges.get(pending.pop(), ()) if n not in found]
        found.update(fresh)
        pending.extend(fresh)
    return found


def _content_hash(texts: Mapping[str, str]) -> str:
    """One hash of all files: their names inside the manifests directory and their texts."""
    digest = hashlib.sha256()
    for name, text in sorted(texts.items()):
        digest.update(f"{name.replace(os.sep, '/')}\0{len(text)}\0{text}".encode())
    return digest.hexdigest()


def _merge_axis(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """A pack's additions to an axis: further values and aliases, and replaced words, defaults and conditions."""
    merged = dict(base)
    for key in _OVERRIDES:
        if key not in extra:
            continue
        if key == "values":
            merged["values"] = {**_value_table(base.get("values")), **_value_table(extra["values"])}
        elif key == "aliases":
            merged["aliases"] = list(dict.fromkeys([*(base.get("aliases") or ()), *extra["aliases"]]))
        else:
            merged[key] = extra[key]
    return merged


def _value_table(values: Any) -> dict[str, Any]:
    return dict(values) if isinstance(values, Mapping) else {v: {} for v in values or ()}
