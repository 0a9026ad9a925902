"""What `attn-select lint` looks at: which files a path stands for, and every fault of each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from selector.cli.errors import UsageError
from selector.errors import Fault, ManifestError, SelectorError

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.vocabulary import Vocabulary
    from selector.yaml_loader import Document

__all__ = ["Checked", "check"]

#: Kinds of files by their first key; those that a schema and the vocabulary alone can judge.
KINDS = ("vocabulary", "manifest", "pack", "environment", "software", "invariants", "fleet")


class Checked:
    """What was looked at: the names of files and packs, and the faults, each once, in the order of the files."""

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.faults: dict[Fault, None] = {}
        #: Catalogs that could be loaded, each with the one file that was asked about (None: all of it).
        self.catalogs: list[tuple[Catalog, str | None]] = []

    def add(self, faults: Iterable[Fault]) -> None:
        self.faults.update(dict.fromkeys(faults))

    def sorted(self) -> list[Fault]:
        """All faults in file order."""
        return sorted(self.faults, key=lambda f: (f.at, f.message))


def check(paths: Iterable[str], root: str | None) -> Checked:
    """Every fault of some files and directories; of the whole manifests directory ``root`` if none are given.

    A path is a manifests directory, a pack's directory, or one file. Without a ``root`` it is held against the manifests
    directory that it stands in, or else the one in use. Raises UsageError for a path that is not there.
    """
    from selector.locations import manifests_root

    checked = Checked()
    given = list(paths)
    named, usual = root, manifests_root()
    if not given:
        _root(checked, named or usual)
    for path in given:
        root = named or _around(path) or usual
        if not os.path.lexists(path):
            raise UsageError(f"lint {path}: no such file or directory")
        if os.path.isfile(os.path.join(path, "vocabulary.yaml")) and not _is_pack(path):
            _root(checked, os.path.abspath(path))
        elif os.path.isdir(path):
            _folder(checked, path, root)
        else:
            _file(checked, path, root)
    return checked


def _around(path: str) -> str | None:
    """The manifests directory that a pack, or a file of one, stands in."""
    folder = os.path.abspath(path)
    for _ in range(2):
        folder = os.path.dirname(folder)
        if os.path.isfile(os.path.join(folder, "vocabulary.yaml")) and not _is_pack(folder):
            return folder
    return None


def _is_pack(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "pack.yaml"))


def _root(checked: Checked, root: str) -> None:
    """A whole manifests directory: its vocabulary, every pack, every environment, the software list."""
    from selector.catalog import pack_names

    vocabulary = _vocabulary(checked, root)
    if vocabulary is None:
        return
    for name in pack_names(root):
        _pack(checked, os.path.join(root, name), root)
    for folder in (os.path.join(root, "environments"), root):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            if name.endswith((".yaml", ".yml")) and name != "vocabulary.yaml":
                _plain(checked, os.path.join(folder, name), root, vocabulary)


def _vocabulary(checked: Checked, root: str) -> Vocabulary | None:
    from selector.loader import Loader as _Loader

    checked.looked.append("vocabulary.yaml")
    try:
        return _Loader(root).base()
    except ManifestError as error:
        checked.add(error.faults)
        return None


def _pack(checked: Checked, folder: str, root: str) -> None:
    from selector.catalog import Catalog

    checked.looked.append(f"pack {os.path.basename(os.path.abspath(folder))}")
    try:
        checked.catalogs.append((Catalog.load(os.path.join(folder, ""), manifests=root), None))
    except ManifestError as error:
        checked.add(error.faults)


def _folder(checked: Checked, folder: str, root: str) -> None:
    """A pack; otherwise every YAML file under the directory, packs as packs."""
    if _is_pack(folder):
        _pack(checked, folder, root)
        return
    before = len(checked.looked)
    for base, folders, names in os.walk(folder):
        folders.sort()
        if _is_pack(base):
            folders.clear()
            _pack(checked, base, root)
            continue
        for name in sorted(names):
            if name.endswith((".yaml", ".yml")):
                _file(checked, os.path.join(base, name), root)
    if len(checked.looked) == before:
        raise UsageError(f"lint {folder}: no YAML file in it")


def _file(checked: Checked, path: str, root: str) -> None:
    """One file: with its pack if it stands in one (faults of other files are left out), else alone."""
    folder = os.path.dirname(os.path.abspath(path))
    if _is_pack(folder):
        inner = Checked()
        _pack(inner, folder, root)
        name = os.path.basename(path)
        checked.looked.append(path)
        checked.add(f for f in inner.faults if os.path.basename(f.at.file) == name)
        checked.catalogs += [(catalog, name) for catalog, _ in inner.catalogs]
        return
    vocabulary = _vocabulary(checked, root)
    if vocabulary is not None:
        _plain(checked, path, root, vocabulary)


def _plain(checked: Checked, path: str, root: str, vocabulary: Vocabulary) -> None:
    from selector.locations import display_name
    from selector.yaml_loader import load_file

    checked.looked.append(path)
    try:
        document = load_file(path, display_name(os.path.abspath(path), root))
    except ManifestError as error:
        checked.add(error.faults)
        return
    checked.add(_faults(document, path, vocabulary, root))


def _faults(document: Document, path: str, vocabulary: Vocabulary, root: str) -> list[Fault]:
    from selector.schema_build import build
    from selector.validate import validate

    data: Any = document.data
    if not isinstance(data, dict):
        return [document.fault((), "the file is empty" if data is None else "a mapping is wanted here")]
    kind = next((k for k in KINDS if k in data), None)
    if kind is None:
        return _other(document, path)
    if kind == "invariants":
        return _invariants(document, root)
    schema = build(vocabulary.raw)[kind]
    faults = validate(document, schema)
    wrong = any(f.severity == "error" for f in faults)
    if kind == "manifest":
        from selector.manifest import decode_manifest
        from selector.salvage import salvage

        rest = salvage(document, schema) if wrong else document
        faults += [] if rest is None else decode_manifest(rest, vocabulary, "", partial=wrong)[1]
    elif wrong:
        return faults
    elif kind == "environment":
        faults += _environment(document, vocabulary)
    elif kind == "fleet":
        from selector.fleet import fleet_of

        faults += fleet_of(document, vocabulary, root, os.path.dirname(os.path.abspath(path)))[1]
    return faults


def _invariants(document: Document, root: str) -> list[Fault]:
    """Sentences may speak of the axes and candidates of any pack; those of a broken pack are looked at without it."""
    from selector.analysis.invariants import decode, faults_of
    from selector.catalog import Catalog, pack_names

    catalogs = []
    for name in pack_names(root):
        try:
            catalogs.append(Catalog.load(name, manifests=root))
        except ManifestError:
            continue
    faults = faults_of(document, catalogs)
    if any(f.severity == "error" for f in faults):
        return faults
    for catalog in catalogs:
        try:
            decode(document, catalog)
        except ManifestError as error:
            faults += error.faults
    return faults


def _environment(document: Document, vocabulary: Vocabulary) -> list[Fault]:
    from selector.environment import Environment, from_document
    from selector.errors import EnvironmentFileError

    try:
        from_document(document, Environment, vocabulary)
    except EnvironmentFileError as error:
        return list(error.faults) or [document.fault((), error.message, error.hint)]
    except SelectorError as error:
        return [document.fault(("facts",), str(error))]
    return []


def _other(document: Document, path: str) -> list[Fault]:
    """The description of architectures has a reader of its own; any other file is none of the language's."""
    data: Any = document.data
    if "architectures" in data:
        from selector.model_config import load_architectures

        try:
            load_architectures(path)
        except ManifestError as error:
            return list(error.faults)
        return []
    known = ", ".join(f"{k}:" for k in (*KINDS, "architectures"))
    return [document.fault((), "no kind of file that is known here", f"it begins with one of {known}")]
