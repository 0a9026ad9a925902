"""Targets that read files of the language: YAML, manifests, packs, vocabularies, and all others that `lint` knows."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from selector import Request, explain
from selector.cli.lint_files import _faults
from selector.errors import ManifestError, SelectorError
from selector.loader import Loader
from selector.vocabulary import Vocabulary
from selector.yaml_loader import load_text
from tests.fuzz.common import REQUEST, ROOT, as_yaml, core, h100, sound, vllm


def run_yaml(data: bytes) -> None:
    """Any text is read, or refused with places in it."""
    try:
        document = load_text(data, "f.yaml")
    except ManifestError as error:
        sound(error)
    else:
        json.dumps(document.data, allow_nan=False)


STUB = """
manifest: 1
name: {name}
title: {name}
requires: {{device: any}}
supports: {{dtype: any, head_size: any}}
"""
PACK = b"pack: 1\nname: p\ntitle: P\nversion: x\nunlisted: last\npolicy: []\n"
FOLDER = os.path.join(ROOT, "p")


@cache
def _base() -> bytes:
    return Path(ROOT, "vocabulary.yaml").read_bytes()


@cache
def _schemas() -> Any:
    loader = Loader(
        ROOT, _pack({"pack.yaml": PACK, "a.yaml": STUB.format(name="a").encode()}), folders=[FOLDER]
    )
    loader.load(("p",))
    return loader.schemas


def _pack(files: dict[str, bytes]) -> dict[str, bytes]:
    return {
        os.path.join(ROOT, "vocabulary.yaml"): _base(),
        **{os.path.join(FOLDER, n): d for n, d in files.items()},
    }


def _load(files: dict[str, bytes], *, own_words: bool = False) -> None:
    """Load a pack of these files and, where that is possible, decide and explain with it."""
    loader = Loader(ROOT, _pack(files), folders=[FOLDER])
    if not own_words:
        loader.schemas = _schemas()
    try:
        catalog = loader.load(("p",))
    except ManifestError as error:
        sound(error)
        return
    try:
        report = explain(REQUEST, catalog=catalog, environment=h100())
    except SelectorError as error:
        sound(error)
        return
    report.to_text(verbose=True)
    json.dumps(report.to_dict(), allow_nan=False)


def run_manifest(data: bytes) -> None:
    """A manifest in a pack of its own."""
    _load({"pack.yaml": PACK, "m.yaml": data})


@cache
def _stubs() -> dict[str, bytes]:
    return {f"{m.name}.yaml": STUB.format(name=m.name).encode() for m in vllm().manifests}


def run_pack(data: bytes) -> None:
    """A pack's policy, with manifests of the names that it uses."""
    _load({"pack.yaml": data, **_stubs()})


def run_vocabulary(data: bytes) -> None:
    """A vocabulary alone."""
    try:
        vocabulary = Loader(ROOT, {os.path.join(ROOT, "vocabulary.yaml"): data}).base()
    except ManifestError as error:
        sound(error)
        return
    try:
        Request(REQUEST, vocabulary=vocabulary)
    except SelectorError as error:
        sound(error)


def some_axes() -> list[bytes]:
    """The shipped vocabularies cut into pieces: an axis and all that it is made from."""
    found: dict[bytes, None] = {}
    for path in sorted(Path(ROOT).glob("**/vocabulary.yaml")):
        axes: Any = {**as_yaml(_base())["axes"], **as_yaml(path.read_bytes())["axes"]}
        vocabulary = Vocabulary({"vocabulary": 1, "axes": {k: v for k, v in axes.items() if "type" in v}})
        for axis in vocabulary.axes:
            wanted, pending = {axis.index}, [axis.index]
            while pending:
                fresh = [i for i in vocabulary.depends[pending.pop()] if i not in wanted]
                wanted.update(fresh)
                pending.extend(fresh)
            if len(wanted) <= 12:
                part = {vocabulary.axes[i].name: axes[vocabulary.axes[i].name] for i in sorted(wanted)}
                found[json.dumps({"vocabulary": 1, "axes": part}).encode()] = None
    return list(found)


def run_file(data: bytes) -> None:
    """Any file that `lint` knows, judged by itself: environments, software, fleets, invariants, packs, manifests."""
    try:
        document = load_text(data, "f.yaml")
        faults = _faults(document, os.path.join(ROOT, "f.yaml"), core().vocabulary, ROOT)
    except SelectorError as error:
        sound(error)
        return
    if faults:
        sound(ManifestError(faults))
