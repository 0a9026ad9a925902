"""The catalog: packs, manifests and vocabulary, loaded, checked and compiled. Immutable; an edit makes a new one.

A catalog whose files were compiled before comes from the cache on disk: its tables at once, manifests and program when they
are read. The key is the content of all files, so reading them is what finding out costs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from selector import cache, request, sources
from selector.locations import VARIABLE, manifests_root
from selector.vocabulary import Vocabulary

if TYPE_CHECKING:
    from selector.engine import Engine
    from selector.loader import Loader as _Loader
    from selector.manifest import Candidate, Manifest
    from selector.pack import Pack
    from selector.program import Program
    from selector.request import Request
    from selector.tables import Tables

__all__ = ["Catalog", "base_vocabulary", "pack_names"]

DEFAULT_PACK = "core"

#: Vocabularies kept by the content of their files.
KEPT = 32
_VOCABULARIES: dict[str, Vocabulary] = {}
#: The vocabulary file as it was last seen: time and size, and what it holds.
_SEEN: dict[str, tuple[int, int, Vocabulary]] = {}


def __getattr__(name: str) -> Any:
    if name == "_Loader":
        from selector.loader import Loader

        return Loader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Whole:
    """Packs, manifests and the whole program of a catalog."""

    __slots__ = ("manifests", "packs", "program")
    packs: tuple[Pack, ...]
    manifests: tuple[Manifest, ...]
    program: Program


class Catalog:
    """What can be chosen, under which rules, in which order.

    ``Catalog.load("core")`` takes pack names, pack directories and manifests directories; several packs make one catalog
    whose policies follow each other in the order given. Raises ManifestError with every fault of every file.
    """

    __slots__ = (
        "__weakref__",
        "_evidence",
        "_whole",
        "engines",
        "hash",
        "name",
        "root",
        "tables",
        "vocabulary",
    )

    def __init__(
        self,
        vocabulary: Vocabulary,
        packs: Iterable[Pack],
        manifests: Iterable[Manifest],
        content: str,
        root: str,
    ) -> None:
        from selector.policies import combined
        from selector.program import Program

        kept = _Whole()
        kept.packs, kept.manifests = tuple(packs), tuple(manifests)
        candidates = [c for m in kept.manifests for c in m.candidates]
        closed = frozenset(p.name for p in kept.packs if p.unlisted == "excluded")
        kept.program = Program(vocabulary, candidates, combined(kept.packs), closed)
        self.vocabulary, self.hash, self.root = vocabulary, content, root
        #: The packs' names.
        self.name = "+".join(p.name for p in kept.packs)
        self.tables: Tables = kept.program.tables
        self._whole: _Whole | None = kept
        self._evidence: Callable[[], Catalog] | None = None
        #: Engines by environment (see `selector.engine.engine_for`): they go when the catalog does.
        self.engines: dict[tuple[str, bool, str, bool], Engine] = {}

    @classmethod
    def compiled(
        cls,
        vocabulary: Vocabulary,
        tables: Tables,
        name: str,
        content: str,
        root: str,
        evidence: Callable[[], Catalog],
    ) -> Catalog:
        """A catalog that was compiled before; ``evidence`` makes it anew from its files when somebody asks why."""
        self = object.__new__(cls)
        self.vocabulary, self.tables, self.name = vocabulary, tables, name
        self.hash, self.root = content, root
        self._whole, self._evidence, self.engines = None, evidence, {}
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (Catalog, (self.vocabulary, self.packs, self.manifests, self.hash, self.root))

    def whole(self) -> _Whole:
        """What only explanations read."""
        if self._whole is None:
            assert self._evidence is not None, "a catalog has its parts or knows how to make them"
            self._whole = self._evidence().whole()
        return self._whole

    @property
    def packs(self) -> tuple[Pack, ...]:
        """The packs, in the order given."""
        return self.whole().packs

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """Every manifest, pack by pack."""
        return self.whole().manifests

    @property
    def program(self) -> Program:
        """The compiled form with everything that explanations read."""
        return self.whole().program

    @classmethod
    def load(cls, *names: str, manifests: str | os.PathLike[str] | None = None) -> Catalog:
        """Load packs by name or directory from a manifests directory (default: the shipped one)."""
        return _load(
            os.fspath(manifests) if manifests is not None else manifests_root(), names or (DEFAULT_PACK,)
        )

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every candidate, abstract ones included, in catalog order."""
        return self.program.candidates

    def find(self, name: str) -> tuple[Candidate, ...]:
        """The candidates that a candidate's or a backend's name stands for; case matters only where packs differ in it."""
        folded = name.lower()
        found = [c for c in self.candidates if not c.abstract and folded in (c.id.lower(), c.backend.lower())]
        return tuple([c for c in found if name in (c.id, c.backend)] or found)

    def names(self) -> list[str]:
        """Every name that `find` takes."""
        found = dict.fromkeys(n for c in self.candidates if not c.abstract for n in (c.id, c.backend))
        return list(found)

    def request(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> Request:
        """A request in this catalog's vocabulary."""
        from selector.request import Request

        return Request(fields, vocabulary=self.vocabulary, **more)

    def __repr__(self) -> str:
        return f"Catalog({self.name}: {len(self.tables.ids)} candidates, {self.hash[:8]})"


def pack_names(root: str | None = None) -> list[str]:
    """The packs of a manifests directory."""
    return sources.pack_names(manifests_root() if root is None else root)


# -- the vocabulary ---------------------------------------------------------------------------------------------------


def base_vocabulary(root: str | None = None) -> Vocabulary:
    """The vocabulary of a manifests directory (default: the one in use), without any pack's additions."""
    folder = manifests_root() if root is None else root
    path = os.path.join(folder, "vocabulary.yaml")
    try:
        status = os.stat(path)
    except OSError:
        return _loader(folder, None).base()
    seen = _SEEN.get(path)
    if seen is not None and seen[:2] == (status.st_mtime_ns, status.st_size):
        return seen[2]
    data = sources.contents([path])
    if data is None:
        return _loader(folder, None).base()
    found = base_of(folder, data[path])
    if len(_SEEN) >= KEPT:
        _SEEN.clear()
    _SEEN[path] = (status.st_mtime_ns, status.st_size, found)
    return found


def base_of(root: str, data: bytes, make: Callable[[], Vocabulary] | None = None) -> Vocabulary:
    """The vocabulary of the bytes of `vocabulary.yaml`; ``make`` makes it where it is not known yet."""
    path = os.path.join(root, "vocabulary.yaml")
    key = _key({path: data}, root)
    found = _VOCABULARIES.get(key)
    if found is None:
        from selector.image import read_vocabulary, vocabulary_line

        lines = cache.load("vocabulary", key)
        if lines is not None:
            try:
                found = read_vocabulary(lines[0])
            except cache.UNSOUND:
                found = None
        if found is None:
            found = make() if make is not None else _loader(root, {path: data}).base()
            cache.store("vocabulary", key, [vocabulary_line(found)])
        if len(_VOCABULARIES) >= KEPT:
            _VOCABULARIES.clear()
        found = _VOCABULARIES.setdefault(key, found)  # another thread may have been first: one object for all
    return found


def _key(files: Mapping[str, bytes], root: str) -> str:
    # how messages call the files depends on the root and on whether it is the one in use
    return sources.key_of(
        files, root, cache.stamp(), str(root == manifests_root()), os.environ.get(VARIABLE, "")
    )


def _loader(root: str, contents: Mapping[str, bytes] | None) -> _Loader:
    from selector.loader import Loader

    return Loader(root, contents)


# -- catalogs ---------------------------------------------------------------------------------------------------------


def _load(root: str, names: tuple[str, ...]) -> Catalog:
    request.forget()
    found: list[str] = []
    for name in names:
        folder = sources.pack_folder(name, root)
        if folder is None:
            break
        found.append(folder)
    data = sources.contents(sources.files_of(found, root)) if len(found) == len(names) else None
    if data is None:
        return _loader(root, None).load(names)  # which says what is wrong with them
    key = _key(data, root)
    known = _stored(key, root, names, found, data)
    if known is None:
        loader = _loader(root, data)
        known = loader.load(names)
        cache.store("catalog", key, _lines(known, loader))
    return known


def _lines(catalog: Catalog, loader: _Loader) -> list[str]:
    """A loaded catalog as the lines of an entry: about it, its vocabulary (empty: the base), its tables, its files."""
    from selector.document import listed_places
    from selector.image import dump, tables_line, vocabulary_line

    based = catalog.vocabulary in _VOCABULARIES.values()
    files = [
        [path, document.name, document.data, listed_places(document)]
        for path, document in loader.documents.items()
    ]
    return [
        dump([catalog.hash, catalog.name]),
        "" if based else vocabulary_line(catalog.vocabulary),
        tables_line(catalog.tables),
        dump(files),
    ]


def _stored(
    key: str, root: str, names: tuple[str, ...], folders: list[str], data: Mapping[str, bytes]
) -> Catalog | None:
    """The catalog of an entry of the cache, if there is a sound one."""
    lines = cache.load("catalog", key)
    if lines is None:
        return None
    from json import loads

    from selector.image import read_tables, read_vocabulary

    try:
        about, words, tables, files = lines
        content, name = loads(about)
        base = os.path.join(root, "vocabulary.yaml")
        vocabulary = read_vocabulary(words) if words else base_of(root, data[base])
        compiled = read_tables(tables, vocabulary)
    except cache.UNSOUND:
        return None

    def evidence() -> Catalog:
        from selector.document import Stored
        from selector.loader import Loader

        documents = {path: Stored(called, "", raw, places) for path, called, raw, places in loads(files)}
        return Loader(root, documents=documents, folders=folders, vocabulary=vocabulary).load(names)

    return Catalog.compiled(vocabulary, compiled, name, content, root, evidence)
