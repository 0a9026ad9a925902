"""Reading packs and environments for the plain interpreter: raw YAML, no validation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from .axes import UNKNOWN, Raw, Vocabulary
from .values import Situation


class Loader(yaml.CSafeLoader):
    """Safe YAML with the scalars of YAML 1.2's core schema: `on`, `yes` and dates stay strings."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for tag, pattern, first in (
    ("null", r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"[-+]?[0-9]+$", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
):
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), first)
Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value, 10))
Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(node.value))


def read(path: Path) -> Raw:
    """The raw contents of one YAML file."""
    return yaml.load(path.read_bytes(), Loader=Loader)


def merge_vocabularies(base: Mapping[str, Raw], extra: Mapping[str, Raw]) -> dict[str, Raw]:
    """The base with a pack's further axes; of an axis both have, values and aliases add up, other keys replace."""
    axes: dict[str, Raw] = {name: dict(axis) for name, axis in base["axes"].items()}
    for name, axis in (extra.get("axes") or {}).items():
        known = axes.get(name, {})
        merged = {**known, **axis}
        if "values" in known and "values" in axis:
            merged["values"] = {**values(known), **values(axis)}
        if "aliases" in known and "aliases" in axis:
            merged["aliases"] = [*known["aliases"], *axis["aliases"]]
        axes[name] = merged
    return {**base, "axes": axes}


def values(axis: Mapping[str, Raw]) -> dict[str, Raw]:
    """A choice's values as a mapping."""
    raw = axis.get("values") or {}
    return dict(raw) if isinstance(raw, Mapping) else {value: {} for value in raw}


def read_vocabulary(manifests_dir: Path, pack: str | None = None) -> dict[str, Raw]:
    """The vocabulary of a manifests directory, merged with the pack's own where it has one."""
    vocabulary: dict[str, Raw] = read(manifests_dir / "vocabulary.yaml")
    if pack is not None and (manifests_dir / pack / "vocabulary.yaml").is_file():
        vocabulary = merge_vocabularies(vocabulary, read(manifests_dir / pack / "vocabulary.yaml"))
    return vocabulary


def read_pack(
    manifests_dir: Path | str, pack: str
) -> tuple[dict[str, Raw], dict[str, Raw], list[dict[str, Raw]]]:
    """Vocabulary, pack and manifests (sorted by file name) of one pack."""
    root = Path(manifests_dir)
    files = sorted((root / pack).glob("*.yaml"), key=lambda path: path.name)
    manifests = [read(path) for path in files if path.name not in ("pack.yaml", "vocabulary.yaml")]
    return (
        read_vocabulary(root, pack),
        read(root / pack / "pack.yaml"),
        [manifest for manifest in manifests if "manifest" in manifest],
    )


def load_environment(
    manifests_dir: Path | str, name: str, *, pack: str | None = None, profile: str = "full"
) -> dict[str, Raw]:
    """The facts of a preset environment with the packages of a software profile.

    Facts of axes that the pack's vocabulary lacks are left out. ValueError for a name nobody has.
    """
    root = Path(manifests_dir)
    vocabulary = Vocabulary(read_vocabulary(root, pack))
    for path in sorted((root / "environments").glob("*.yaml")):
        raw = read(path)
        if name == raw["name"] or name in (raw.get("aliases") or []):
            facts = {axis: value for axis, value in raw["facts"].items() if axis in vocabulary.alias}
            break
    else:
        raise ValueError(f"no environment is called {name!r}")
    if not (root / "software.yaml").is_file():
        return facts
    software = read(root / "software.yaml")
    chosen = software["profiles"][profile]

    def holds(condition: Raw) -> bool:
        given = {vocabulary.axis_name(axis): value for axis, value in facts.items() if value is not UNKNOWN}
        situation = Situation(vocabulary, {a: vocabulary.canonical(a, v) for a, v in given.items()})
        return situation.holds(condition, null=False, unknown=False)

    for entry in chosen.get("facts") or []:
        if holds(entry.get("when")):
            facts.update({axis: v for axis, v in entry["set"].items() if axis in vocabulary.alias})
    names = software["packages"] if chosen["packages"] == "all" else chosen["packages"]
    facts["packages"] = {
        package: {"version": software["packages"][package].get("version"), "state": "usable"}
        for package in names
        if holds(software["packages"][package].get("when"))
    }
    return facts
