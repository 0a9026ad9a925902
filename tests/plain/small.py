"""A small vocabulary and short ways to ask a question, for the hand-written cases."""

from __future__ import annotations

import yaml

from .axes import Raw
from .interpreter import Catalog, Decision, decide
from .loading import Loader

AXES = """
  size: {type: integer, aliases: [dim]}
  size_v: {type: integer, default: {same_as: size}}
  block: {type: integer}
  dtype: {type: choice, values: {f16: {aliases: [half]}, f32: {}, f8: {tags: [quantized, small]}, f4: {tags: [small]}}}
  cache: {type: choice, values: [auto, f8, f4], default: auto}
  quantized: {type: flag, derive: {tag: {axis: dtype, tag: quantized}}}
  window: {type: pair}
  sinks: {type: flag}
  mla: {type: mode}
  wide: {type: flag, undeclared: any}
  deep: {type: mode, undeclared: any}
  version: {type: integer, identity: true}
  kind: {type: choice, values: [a, b], undeclared: none}
  device: {type: choice, of: environment, values: [cpu, gpu]}
  cc: {type: version, of: environment, applies_when: {device: gpu}}
  amx: {type: mode, of: environment}
  fast: {type: flag, of: environment, default: false}
  packages: {type: packages, of: environment}
  here: {type: mode, of: environment}
"""
GPU = 'device: gpu, cc: "9.0", packages: {torch: {version: "2.4.0", state: usable}}'


def parse(text: str) -> Raw:
    """Raw YAML."""
    return yaml.load(text, Loader=Loader)


def catalog(*manifests: str, pack: str = "{pack: 1}", axes: str = "") -> Catalog:
    """A catalog over `AXES` (and further ones) from texts of manifests."""
    return Catalog(parse("axes:" + AXES + axes), parse(pack), [parse(manifest) for manifest in manifests])


def ask(
    asked: Catalog,
    request: str = "",
    environment: str = GPU,
    *,
    backend: str | None = None,
    strict: bool = False,
) -> Decision:
    """The decision for a request and an environment in flow style without the braces."""
    return decide(
        asked, parse("{" + request + "}"), parse("{" + environment + "}"), backend=backend, strict=strict
    )
