"""A vocabulary with every type of axis, and valid files of every kind, for the tests of schemas and validation."""

from __future__ import annotations

import textwrap
from typing import Any

from selector.schema_build import build
from selector.yaml_loader import load_text


def data_of(text: str) -> dict[str, Any]:
    """The data of an indented YAML text."""
    data = load_text(textwrap.dedent(text), "sample.yaml").data
    assert isinstance(data, dict)
    return data


VOCABULARY_TEXT = """\
    vocabulary: 1
    axes:
      head_size: {type: integer, of: request, title: head size, doc: Elements of a head., unit: elements,
                  aliases: [head_dim], min: 1, max: 65536, declare: required}
      head_size_v: {type: integer, of: request, default: {same_as: head_size}}
      dtype:
        type: choice
        of: request
        values:
          float16: {aliases: [fp16, half], tags: [b16]}
          bfloat16: {aliases: [bf16], tags: [b16]}
          fp8_e4m3: {tags: [quantized]}
      attn_type: {type: choice, of: request, default: decoder, values: [decoder, encoder]}
      sinks: {type: flag, of: request, aliases: [has_sink]}
      mla: {type: mode, of: request, aliases: [use_mla]}
      window: {type: pair, of: request, unit: tokens}
      window_left: {type: integer, derive: {element: [window, 0]}}
      quantized: {type: flag, derive: {tag: {axis: dtype, tag: quantized}}}
      fa_version: {type: integer, of: request, identity: true, aliases: [flash_attn_version]}
      device: {type: choice, of: environment, declare: required, values: {cuda: {aliases: [nvidia]}, cpu: null}}
      device_name: {type: choice, of: environment, open: true, values: []}
      arch: {type: choice, of: environment, open: true, values: [gfx90a], applies_when: {device: cuda}}
      compute_capability: {type: version, of: environment, aliases: [sm]}
      amx: {type: mode, of: environment, undeclared: any, source: "https://example.com", note: text}
      hopper: {type: flag, derive: {when: {compute_capability: "==9.*"}}}
      packages: {type: packages, of: environment, fix: environment}
      rounded:
        type: integer
        derive: {round_up: [{max: [head_size, head_size_v, 16]}, 16]}
      kind:
        type: choice
        values: [small, large]
        derive:
          case:
            - {when: {head_size: {max: 64}}, value: small}
            - {when: {head_size: {given: true}}, value: {axis: attn_type}}
          else: {table: {axis: dtype, map: {float16: large}, else: small}}
    """
VOCABULARY = data_of(VOCABULARY_TEXT)

#: Kind of file to a valid file that uses everything the kind has.
FILES = {
    "vocabulary": VOCABULARY_TEXT,
    "manifest": """\
        manifest: 1
        name: flash_attn
        title: FlashAttention
        doc: text
        kernel: backends.flash_attn
        homepage: https://example.com
        source: https://example.com
        sources: {head_size: "https://example.com/h"}
        option: --backend X
        note: text
        requires:
          device: [cuda]
          compute_capability: [">=8.0,<9", "==9.*", "12.0"]
          arch: gfx1100
          amx: any
          hopper: true
          packages: {torch: ">=2.4", flash-attn: [">=2.6,<3", "==4.0.0b3"], old: absent, x.y_z: any}
        supports:
          dtype: [bf16, float16]
          head_size: [64, {multiple_of: 8, min: 8, max: 256, required: true, not_in: [72], in: [8, 16]}]
          attn_type: {not_in: [encoder]}
          sinks: true
          mla: any
          window: [[-1, -1], [0, 0]]
          rounded: {max: 256}
        rules:
          - name: sinks
            when: {any: [{sinks: true}, {all: [{mla: true}, {not: {head_size: 64}}]}], dtype: {tagged: b16}}
            unless: {accepts: other/x}
            require: {accepts: [other, flash_attn/fa2], window_left: {min: 0}, head_size_v: {given: false}}
            variants: [fa2]
            reject: text
            axis: [sinks, mla]
            source: https://example.com
            note: text
          - warn: text
            strict: true
            axis: sinks
        known_wrong:
          - {when: {sinks: false}, reject: text, until: {packages: {cudnn: ">=9.12"}}, source: text}
        adjust:
          - {when: {window: {in: [[1, 2]]}}, set: {head_size: 64, sinks: false, dtype: half, window: null}, note: text}
          - {use: other/x}
        variants:
          - {name: base, abstract: true, fa_version: 2}
          - name: fa2
            extends: base
            fa_version: {in: [2, 3]}
            requires: {packages: {torch: any}}
            supports: {dtype: any, window: any, head_size: any}
            rules: []
            known_wrong: []
            adjust: []
            source: text
            sources: {sinks: text}
            note: text
            option: text
            title: FA2
            doc: text
        """,
    "pack": """\
        pack: 1
        name: core
        title: Core
        version: vLLM 0.32.0
        source: https://example.com
        doc: text
        option: text
        unlisted: last
        phases: [prefill, decode]
        pairs:
          - {when: {sinks: true}, prefill: [a, b/c], decode: [c], note: text}
        error:
          request: {after: "Config(", before: ")"}
          backend: {after: "asked for ", before: " is not"}
          environment: {device: {after: "on ", before: ":"}}
          refusals: {after: "{", before: "}"}
          refusal: {after: "[", before: "]"}
          doc: text
          source: https://example.com
          note: text
        policy:
          - name: hopper
            when: {compute_capability: "==9.*", mla: false}
            order: [flash_attn/fa3, flashinfer, {candidate: torch_sdpa, when: {mla: true}, unless: {sinks: true}}]
            unlisted: excluded
            note: text
          - {name: rest, order: []}
        """,
    "environment": """\
        environment: 1
        name: h100
        title: NVIDIA H100
        aliases: [h100-sxm]
        facts:
          device: nvidia
          device_name: NVIDIA H100 80GB HBM3
          arch: null
          compute_capability: "9.0"
          amx: false
          packages: {torch: "2.13.0+cu130", x: {version: null, state: missing, detail: text}, y: null}
        source: https://example.com
        sources: {device: text}
        note: text
        doc: text
        """,
    "software": """\
        software: 1
        packages:
          flash-attn: {version: "2.8.3", import: flash_attn.cute, when: {device: cuda}, install: text, source: text, note: x}
        profiles:
          full: {packages: all, facts: [{when: {device: cuda}, set: {compute_capability: "9.0"}, source: x, note: x}]}
          bare: {packages: [torch]}
        """,
    "fleet": """\
        fleet: 1
        title: Production
        doc: text
        note: text
        machines:
          - {on: h100, count: 64, name: new, profile: bare, with: {flash-attn: "2.8.3"}, without: [torch], note: text}
          - on: machines/env.json
            facts: {device: nvidia, compute_capability: "9.0", amx: false, packages: {x: null}}
        """,
    "request": """\
        head_dim: 128
        head_size_v: null
        dtype: bf16
        sinks: true
        window: [-1, 0]
        fa_version: 3
        """,
    "invariants": """\
        invariants:
          - {name: never on fa2, when: {sinks: true}, never: {selected: [flash_attn/fa2], accepted: flashinfer}, doc: text}
          - {name: something, packs: [core], facts: known, always: {some: candidate, selected: [x], accepted: y/z}, source: x, note: x}
          - {name: so, implies: {any: [{sinks: false}, {accepts: flash_attn/fa3}]}}
        """,
}

SCHEMAS = build(VOCABULARY)
