"""Hand-written cases for every row of the language's tables, against the plain interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from .axes import Raw
from .interpreter import UNKNOWN, Catalog, Decision, Reason, decide, load_pack
from .loading import Loader, merge_vocabularies
from .strategies import Case, cases

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


def declared(limit: str, request: str = "", environment: str = GPU) -> bool:
    """Does a candidate that declares one limit accept?"""
    part = "requires" if limit.split(":")[0] in ("device", "cc", "amx", "fast", "packages") else "supports"
    return bool(ask(catalog(f"{{name: x, {part}: {{{limit}}}}}"), request, environment).ranked)


def rejects(rule: str, request: str = "", environment: str = GPU) -> bool:
    """Does a rejecting rule reject? Every axis it could meet is declared open."""
    text = f"{{name: x, supports: {{sinks: any, mla: any, kind: any}}, rules: [{{reject: no, {rule}}}]}}"
    return not ask(catalog(text), request, environment).ranked


def value(axis: str, entry: str, request: str = "", environment: str = GPU) -> Raw:
    """The value of one further axis."""
    return ask(catalog(axes=f"  {axis}: {entry}\n"), request, environment).values[axis]


@pytest.mark.parametrize(
    ("limit", "request_", "accepted"),
    [
        # flag: not needed, or had; undeclared is not had
        ("sinks: true", "sinks: true", True),
        ("sinks: true", "sinks: false", True),
        ("sinks: any", "sinks: true", True),
        ("sinks: false", "sinks: true", False),
        ("sinks: false", "", True),
        ("", "sinks: true", False),
        ("", "sinks: false", True),
        ("", "wide: true", True),  # says undeclared: any
        # mode: equal; undeclared is false
        ("mla: true", "mla: true", True),
        ("mla: true", "mla: false", False),
        ("mla: true", "", False),
        ("mla: any", "mla: true", True),
        ("mla: any", "", True),
        ("", "mla: true", False),
        ("mla: true", "mla: null", True),
        ("", "sinks: null", True),
        ("", "deep: true", True),  # says undeclared: any
        # choice
        ("dtype: f16", "dtype: f16", True),
        ("dtype: f16", "dtype: half", True),
        ("dtype: half", "dtype: f16", True),
        ("dtype: f16", "dtype: f32", False),
        ("dtype: [f16, f32]", "dtype: f32", True),
        ("dtype: any", "dtype: f4", True),
        ("dtype: {in: [f16]}", "dtype: f32", False),
        ("dtype: {not_in: [f16]}", "dtype: f16", False),
        ("dtype: {not_in: [f16]}", "dtype: f32", True),
        ("dtype: {tagged: quantized}", "dtype: f8", True),
        ("dtype: {tagged: quantized}", "dtype: f4", False),
        ("dtype: {tagged: [quantized, small]}", "dtype: f4", True),
        ("dtype: {tagged: small, not_in: [f4]}", "dtype: f4", False),
        ("", "dtype: f32", True),
        # integer
        ("size: 64", "size: 64", True),
        ("size: 64", "dim: 65", False),
        ("size: [64, 128]", "size: 128", True),
        ("size: {min: 8, max: 16}", "size: 8", True),
        ("size: {min: 8, max: 16}", "size: 17", False),
        ("size: {multiple_of: 8}", "size: 12", False),
        ("size: {not_in: [12]}", "size: 12", False),
        ("size: {in: [12], min: 13}", "size: 12", False),
        ("size: [96, {multiple_of: 64}]", "size: 96", True),
        ("size: [96, {multiple_of: 64}]", "size: 128", True),
        ("size: [96, {multiple_of: 64}]", "size: 32", False),
        # pair
        ("window: [[0, 1], [2, 3]]", "window: [2, 3]", True),
        ("window: {in: [[0, 1]]}", "window: [1, 0]", False),
        ("window: any", "window: [1, 0]", True),
        # null is left open, unless required
        ("size: 64", "", True),
        ("size: 64", "size: null", True),
        ("size: {in: [64], required: true}", "", False),
        ("size: {in: [64], required: true}", "size: 64", True),
        ("size: [{min: 100}, {max: 8, required: true}]", "", False),
        ("dtype: {tagged: small, required: true}", "", False),
        ("dtype: {in: [f16], required: false}", "", True),
        ("window: {in: [[0, 1]], required: true}", "", False),
        # undeclared: none, and identities
        ("", "kind: a", False),
        ("", "", True),
        ("kind: any", "kind: a", True),
        ("", "version: 2", False),
        ("version: 2", "version: 2", True),
    ],
)
def test_declared_limits_of_a_request(limit: str, request_: str, accepted: bool) -> None:
    assert declared(limit, request_) is accepted


@pytest.mark.parametrize(
    ("limit", "environment", "accepted"),
    [
        ('cc: ">=8.0"', GPU, True),
        ('cc: ">=9.1"', GPU, False),
        ('cc: "==9.*"', GPU, True),
        ('cc: [">=10", "<9", "==9.0"]', GPU, True),
        ('cc: {in: [">=10"]}', GPU, False),
        ('cc: ">=8.0"', 'device: gpu, cc: "9.0rc1"', True),  # pre-releases count
        ("cc: any", "device: gpu", True),
        # flags and modes of an environment are equal or not; undeclared is no limit
        ("amx: true", "amx: true", True),
        ("amx: true", "amx: false", False),
        ("amx: true", "", False),
        ("", "amx: true", True),
        ("fast: true", "fast: true", True),
        ("fast: true", "", False),
        ("fast: any", "fast: true", True),
        ("", "fast: true", True),
        # UNKNOWN is not true
        ('cc: ">=8.0"', "device: gpu", False),
        ("device: gpu", "", False),
        ("", "", True),
        # null of an environment is a fact: nothing is there, the limit is open
        ('cc: ">=8.0"', "device: gpu, cc: null", True),
        ('cc: {in: [">=8.0"], required: true}', "device: gpu, cc: null", False),
        # does not apply (surely), may apply (UNKNOWN device): applies
        ('cc: ">=8.0"', "device: cpu", True),
        ('cc: ">=8.0"', 'device: cpu, cc: "7.0"', True),
        ('cc: ">=8.0"', 'cc: "7.0"', False),
        ('cc: ">=8.0"', "", False),
        # packages
        ('packages: {torch: ">=2"}', GPU, True),
        ('packages: {torch: ">=3"}', GPU, False),
        ('packages: {torch: ["<2", ">=2.4"]}', GPU, True),
        ("packages: {torch: any}", GPU, True),
        ("packages: {torch: absent}", GPU, False),
        ("packages: {other: absent}", GPU, True),
        ("packages: {other: any}", GPU, False),
        ('packages: {torch: ">=2", other: any}', GPU, False),
        ("packages: {torch: any}", "device: gpu", False),
        ("packages: {torch: absent}", "device: gpu", False),
        ("packages: {torch: any}", 'packages: {torch: {version: "2", state: broken import}}', False),
        ("packages: {torch: absent}", 'packages: {torch: {version: "2", state: broken import}}', False),
        ("packages: {torch: absent}", "packages: {torch: {state: missing}}", True),
        ("packages: {torch: any}", 'packages: {torch: {version: "2", state: unknown}}', False),
        ("packages: {torch: absent}", "packages: {torch: {state: unknown}}", False),
        ('packages: {torch: ">=2"}', "packages: {torch: {state: usable}}", False),
        ("packages: {torch: any}", "packages: {torch: {state: usable}}", True),
    ],
)
def test_declared_limits_of_an_environment(limit: str, environment: str, accepted: bool) -> None:
    assert declared(limit, environment=environment) is accepted


@pytest.mark.parametrize(
    ("rule", "request_", "rejected"),
    [
        ("when: {size: 64}", "size: 64", True),
        ("when: {size: 64}", "size: 65", False),
        ("when: {size: 64, dtype: f16}", "size: 64, dtype: f32", False),
        ("when: {sinks: true}", "sinks: true", True),
        ("when: {sinks: false}", "sinks: true", False),
        ("when: {sinks: false}", "", True),
        ("when: {sinks: false}", "sinks: null", False),
        ("when: {any: [{size: 1}, {dtype: f16}]}", "dtype: f16", True),
        ("when: {any: [{size: 1}, {dtype: f16}]}", "dtype: f32, size: 2", False),
        ("when: {all: [{size: 1}, {dtype: f16}]}", "dtype: f16, size: 2", False),
        ("when: {not: {size: 1}}", "size: 2", True),
        ("when: {not: {size: 1}}", "size: 1", False),
        ("unless: {size: 1}", "size: 2", True),
        ("unless: {size: 1}", "size: 1", False),
        ("require: {size: 1}", "size: 2", True),
        ("require: {size: 1}", "size: 1", False),
        ("when: {dtype: f16}, unless: {size: 1}, require: {block: 1}", "dtype: f16, size: 2, block: 2", True),
        (
            "when: {dtype: f16}, unless: {size: 1}, require: {block: 1}",
            "dtype: f16, size: 1, block: 2",
            False,
        ),
        (
            "when: {dtype: f16}, unless: {size: 1}, require: {block: 1}",
            "dtype: f16, size: 2, block: 1",
            False,
        ),
        # null resolves towards not rejecting, through `not` as well
        ("when: {size: 64}", "", False),
        ("when: {not: {size: 64}}", "", False),
        ("when: {not: {not: {size: 64}}}", "", False),
        ("when: {any: [{size: 64}, {not: {size: 64}}]}", "", False),
        ("unless: {size: 64}", "", False),
        ("require: {size: 64}", "", False),
        ("require: {not: {size: 64}}", "", False),
        # but what is said of null itself is never open
        ("when: {size: {given: false}}", "", True),
        ("when: {size: {given: true}}", "", False),
        ("when: {size: {given: true}}", "size: 1", True),
        ("when: {not: {size: {given: true}}}", "", True),
        ("require: {size: {given: true}}", "", True),
        ("require: {size: {in: [64], required: true}}", "", True),
        ("when: {not: {size: {in: [64], required: true}}}", "", True),
        ("when: {size: any}", "", True),
    ],
)
def test_a_rejecting_rule(rule: str, request_: str, rejected: bool) -> None:
    assert rejects(rule, request_) is rejected


@pytest.mark.parametrize(
    "rule",
    [
        'when: {cc: ">=8"}',
        'when: {not: {cc: ">=8"}}',
        'when: {cc: "<8"}',
        'unless: {cc: ">=8"}',
        'require: {cc: ">=8"}',
        'require: {not: {cc: ">=8"}}',
        "when: {packages: {torch: any}}",
        "unless: {packages: {torch: any}}",
        "when: {here: true}",
        "when: {here: false}",
    ],
)
def test_an_unknown_fact_makes_a_rule_reject(rule: str) -> None:
    assert rejects(rule, environment="device: gpu")


@pytest.mark.parametrize("part", ["when", "unless", "require"])
@pytest.mark.parametrize(("axis", "environment"), [("size: 64", GPU), ('cc: ">=8"', "device: gpu")])
@pytest.mark.parametrize("negated", [False, True])
def test_null_and_unknown_make_a_warning_not_apply(
    part: str, axis: str, environment: str, negated: bool
) -> None:
    condition = f"{{not: {{{axis}}}}}" if negated else f"{{{axis}}}"
    asked = catalog(f"{{name: x, rules: [{{warn: mind, strict: true, {part}: {condition}}}]}}")
    assert ask(asked, environment=environment).warnings == {}
    assert ask(asked, environment=environment, strict=True).ranked == ["x"]


def test_a_warning_is_shown_and_rejects_only_when_strict() -> None:
    asked = catalog(
        "{name: x, rules: [{warn: one, when: {size: 64}}, {warn: two, strict: true, when: {size: 64}}]}"
    )
    assert ask(asked, "size: 64").warnings == {"x": ["one", "two"]}
    assert ask(asked, "size: 63").warnings == {}
    assert ask(asked, "size: 64", strict=True).rejected == {"x": [Reason("rule", "size", ("size",), 1, 64)]}


def test_known_wrong_until_a_version() -> None:
    asked = catalog(
        '{name: x, known_wrong: [{when: {size: 64}, reject: bad, until: {packages: {torch: ">=2.5"}}}]}'
    )
    old, new = GPU, GPU.replace("2.4.0", "2.5.0")
    assert ask(asked, "size: 64", old).rejected["x"][0][:4] == (
        "known_wrong",
        "size",
        ("size", "packages"),
        0,
    )
    assert ask(asked, "size: 64", new).ranked == ["x"]
    assert ask(asked, "", old).ranked == ["x"]
    assert ask(asked, "size: 64", "device: gpu").ranked == []
    assert ask(asked, "size: 64", old, backend="x").ranked == []


def test_every_reason_is_given_and_named() -> None:
    asked = catalog(
        """
        name: x
        requires: {cc: ">=10"}
        supports: {size: {max: 8}}
        rules:
          - {when: {dtype: f16}, require: {block: 1}, unless: {any: [{mla: true}, {dtype: f8}]}, reject: a}
          - {when: {dtype: f16}, reject: b, axis: [sinks, size]}
          - {reject: c}
        """
    )
    assert ask(asked, "dim: 9, dtype: f16, block: 2").rejected["x"] == [
        Reason("declared", "size", ("size",), -1, 9),
        Reason("declared", "cc", ("cc",), -1, "9.0"),
        Reason("rule", "block", ("block", "dtype", "mla"), 0, 2),
        Reason("rule", "sinks", ("sinks", "size"), 1, False),
        Reason("rule", "", (), 2, None),
    ]


@pytest.mark.parametrize(
    ("entry", "request_", "expected"),
    [
        ("{type: integer, derive: {max: [size, block, 3]}}", "size: 2, block: 5", 5),
        ("{type: integer, derive: {min: [size, block, 3]}}", "size: 2, block: 5", 2),
        ("{type: integer, derive: {sum: [size, block, 3]}}", "size: 2, block: 5", 10),
        ("{type: integer, derive: {product: [size, block, 3]}}", "size: 2, block: 5", 30),
        ("{type: integer, derive: {gcd: [size, block]}}", "size: 12, block: 18", 6),
        ("{type: integer, derive: {difference: [size, block]}}", "size: 2, block: 5", -3),
        ("{type: integer, derive: {modulo: [size, block]}}", "size: 7, block: 5", 2),
        ("{type: integer, derive: {modulo: [size, block]}}", "size: 7, block: 0", None),
        ("{type: integer, derive: {floor_div: [size, block]}}", "size: 7, block: 5", 1),
        ("{type: integer, derive: {ratio: [size, block]}}", "size: 8, block: 4", 2),
        ("{type: integer, derive: {ratio: [size, block]}}", "size: 7, block: 4", None),
        ("{type: integer, derive: {ratio: [size, 0]}}", "size: 7", None),
        ("{type: integer, derive: {round_up: [size, 16]}}", "size: 17", 32),
        ("{type: integer, derive: {round_up: [size, 16]}}", "size: 32", 32),
        (
            "{type: integer, derive: {max: [{round_up: [size, 16]}, {sum: [block, 1]}]}}",
            "size: 3, block: 9",
            16,
        ),
        ("{type: integer, derive: {max: [size, block]}}", "size: 2", None),
        ("{type: integer, derive: {element: [window, 1]}}", "window: [3, 4]", 4),
        ("{type: integer, derive: {element: [window, 1]}}", "", None),
        ("{type: flag, derive: {tag: {axis: dtype, tag: small}}}", "dtype: f4", True),
        ("{type: flag, derive: {tag: {axis: dtype, tag: small}}}", "dtype: half", False),
        ("{type: flag, derive: {tag: {axis: dtype, tag: small}}}", "", False),
        ("{type: flag, derive: {when: {size: 1}}}", "size: 1", True),
        ("{type: flag, derive: {when: {size: 1}}}", "", False),
        ("{type: flag, derive: {when: {not: {size: 1}}}}", "", False),
        ("{type: integer, derive: {table: {axis: dtype, map: {half: 2, f32: 4}}}}", "dtype: f16", 2),
        ("{type: integer, derive: {table: {axis: dtype, map: {f16: 2}, else: 1}}}", "dtype: f8", 1),
        ("{type: integer, derive: {table: {axis: dtype, map: {f16: 2}}}}", "dtype: f8", None),
        ("{type: integer, derive: {table: {axis: dtype, map: {f16: 2}, else: 1}}}", "", None),
        ("{type: integer, derive: {case: [{when: {size: 1}, value: 5}], else: 6}}", "size: 1", 5),
        ("{type: integer, derive: {case: [{when: {size: 1}, value: 5}], else: 6}}", "", 6),
        ("{type: integer, derive: {case: [{when: {size: 1}, value: 5}]}}", "", None),
        ("{type: mode, derive: {case: [{when: {size: 1}, value: true}]}}", "", False),
        (
            "{type: integer, derive: {case: [{when: {size: 1}, value: {axis: block}}]}}",
            "size: 1, block: 9",
            9,
        ),
        (
            "{type: integer, derive: {case: [{when: {size: 1}, value: {sum: [block, 1]}}]}}",
            "size: 1, block: 9",
            10,
        ),
    ],
)
def test_derived_axes(entry: str, request_: str, expected: Raw) -> None:
    assert value("extra", entry, request_) == expected


@pytest.mark.parametrize(
    ("entry", "environment", "expected"),
    [
        ("{type: flag, derive: {when: {device: gpu}}}", "", UNKNOWN),
        ("{type: flag, derive: {when: {not: {device: gpu}}}}", "", UNKNOWN),
        ("{type: flag, derive: {when: {device: gpu, size: 1}}}", "", False),
        ("{type: integer, derive: {table: {axis: device, map: {gpu: 1}, else: 2}}}", "", UNKNOWN),
        ("{type: integer, derive: {case: [{when: {device: gpu}, value: 1}], else: 2}}", "", UNKNOWN),
        ("{type: integer, derive: {case: [{when: {not: {device: gpu}}, value: 1}], else: 2}}", "", UNKNOWN),
        # an unknown fact that changes nothing is no obstacle
        ("{type: integer, derive: {case: [{when: {device: gpu, size: 1}, value: 1}], else: 2}}", "", 2),
        ("{type: integer, derive: {case: [{when: {any: [{device: gpu}, {fast: false}]}, value: 1}]}}", "", 1),
        ("{type: integer, derive: {sum: [{table: {axis: device, map: {gpu: 1}}}, 1]}}", "", UNKNOWN),
        ("{type: integer, derive: {sum: [{table: {axis: device, map: {gpu: 1}}}, size]}}", "", UNKNOWN),
    ],
)
def test_derived_axes_of_unknown_facts(entry: str, environment: str, expected: Raw) -> None:
    assert value("extra", entry, environment=environment) == expected


def test_defaults_and_axes_that_do_not_apply() -> None:
    assert value("extra", "{type: integer, default: 3}") == 3
    assert value("extra", "{type: integer, default: 3}", "extra: 4") == 4
    assert value("extra", "{type: integer, default: 3}", "extra: null") is None
    assert value("extra", "{type: integer, default: {same_as: size}}", "dim: 4") == 4
    entry = "{type: integer, default: 3, applies_when: {dtype: f8}}"
    assert value("extra", entry, "dtype: f8, extra: 4") == 4
    assert value("extra", entry, "extra: 4") == 4  # dtype is open, so the axis applies
    assert value("extra", entry, "dtype: f16, extra: 4") is None
    assert value("extra", entry, "dtype: f16") is None
    assert value("extra", "{type: flag, default: true, applies_when: {dtype: f8}}", "dtype: f16") is False
    assert value("extra", "{type: flag, default: true}") is True
    assert value("extra", "{type: mode, of: environment}") is UNKNOWN
    assert value("extra", "{type: mode, of: environment, default: true}") is True


def test_a_derived_axis_that_nobody_declares_is_no_limit() -> None:
    asked = catalog("{name: x}", "{name: y, supports: {quantized: false}}")
    assert ask(asked, "dtype: f8").ranked == ["x"]


VARIANTS = """
name: fa
requires: {cc: ">=8.0", packages: {torch: ">=2"}}
supports: {size: {max: 256}, sinks: false}
rules:
  - {when: {dtype: f4}, reject: all}
  - {when: {dtype: f8}, reject: two only, variants: [two]}
variants:
  - {name: three, extends: base, version: 3, supports: {sinks: true}, rules: [{when: {size: 3}, reject: own}]}
  - name: base
    abstract: true
    requires: {packages: {lib: any}}
    supports: {size: {max: 64}}
    rules: [{when: {size: 2}, reject: base}]
  - {name: two, version: 2, requires: {cc: "==9.*"}}
"""
WITH_LIB = GPU.replace("usable}", "usable}, lib: {version: '1', state: usable}")


def test_a_derived_axis_belongs_where_what_it_reads_does() -> None:
    axes = """
  here: {type: flag, derive: {when: {device: gpu}}}
  twice: {type: flag, derive: {when: {here: true}}}
  both: {type: flag, derive: {when: {device: gpu, size: {given: true}}}}
"""
    vocabulary = catalog(axes=axes).vocabulary
    assert [vocabulary.of(axis) for axis in ("here", "twice", "both")] == [
        "environment",
        "environment",
        "request",
    ]
    assert vocabulary.of("quantized") == "request"


def test_variants_inherit_an_axis_at_a_time_and_packages_by_name() -> None:
    asked = catalog(VARIANTS)
    assert ask(asked).ranked == ["fa/two"]
    assert [reason.axis for reason in ask(asked).rejected["fa/three"]] == ["packages"]
    assert ask(asked, environment=WITH_LIB).ranked == ["fa/three", "fa/two"]
    assert ask(asked, "size: 65", WITH_LIB).ranked == ["fa/two"]
    assert ask(asked, "sinks: true", WITH_LIB).ranked == ["fa/three"]
    assert ask(asked, "version: 2", WITH_LIB).ranked == ["fa/two"]
    assert ask(asked, "", WITH_LIB.replace('"9.0"', '"8.0"')).ranked == ["fa/three"]


def test_rules_merge_from_manifest_to_sibling_to_variant() -> None:
    asked = catalog(VARIANTS)
    assert ask(asked, "dtype: f4", WITH_LIB).ranked == []
    assert ask(asked, "dtype: f8", WITH_LIB).ranked == ["fa/three"]
    assert ask(asked, "size: 2", WITH_LIB).rejected == {"fa/three": [Reason("rule", "size", ("size",), 1, 2)]}
    assert ask(asked, "size: 3", WITH_LIB).rejected == {"fa/three": [Reason("rule", "size", ("size",), 2, 3)]}


def test_accepts_asks_another_candidate_even_an_abstract_one() -> None:
    asked = catalog(
        "{name: a, variants: [{name: v, abstract: true, supports: {size: 64}}, {name: w}]}",
        "{name: b, rules: [{when: {not: {accepts: a/v}}, reject: needs it}]}",
        "{name: c, rules: [{require: {accepts: [a/v, b]}, reject: needs both, axis: size}]}",
        "{name: d, rules: [{when: {accepts: b}, reject: not beside b}]}",
    )
    assert ask(asked, "size: 64").ranked == ["a/w", "b", "c"]
    assert ask(asked, "size: 65").ranked == ["a/w", "d"]
    assert ask(asked).ranked == ["a/w", "b", "c"]
    assert ask(asked, "size: 65").rejected["c"] == [Reason("rule", "size", ("size",), 0, 65)]


def test_cycles_are_refused() -> None:
    asked = catalog(
        "{name: a, rules: [{when: {accepts: b}, reject: x}]}",
        "{name: b, rules: [{when: {accepts: a}, reject: x}]}",
    )
    with pytest.raises(ValueError, match="a -> b -> a"):
        ask(asked)
    with pytest.raises(ValueError, match="cycle"):
        catalog("{name: a, variants: [{name: v, extends: w}, {name: w, extends: v}]}")


ADJUST = """
name: x
supports: {block: [16, 64]}
adjust:
  - {when: {dtype: f16}, set: {block: 64}}
  - {when: {block: 64}, set: {size: 8}}
rules: [{when: {even: 16}, reject: derived}]
"""


def test_adjust_changes_the_request_in_order_and_derives_again() -> None:
    asked = catalog(ADJUST, axes="  even: {type: integer, derive: {sum: [size, size]}, undeclared: any}\n")
    changed = ask(asked, "dtype: f16, block: 48, size: 7")
    assert changed.rejected == {"x": [Reason("rule", "even", ("even",), 0, 16)]}
    assert changed.values["even"] == 14
    assert ask(asked, "dtype: f32, block: 48").rejected["x"][0].axis == "block"
    assert ask(asked, "dtype: f32, block: 16, size: 8").ranked == []
    plain = ask(asked, "block: 16")
    assert (plain.ranked, plain.adjusted) == (["x"], {})  # an open dtype does not adjust


def test_strict_refuses_a_change_but_not_a_filling() -> None:
    asked = catalog("{name: x, adjust: [{when: {dtype: f16}, set: {block: 64}}]}")
    assert ask(asked, "dtype: f16, block: 16").adjusted == {"x": {"set": {"block": 64}}}
    assert ask(asked, "dtype: f16, block: 64").adjusted == {}
    assert ask(asked, "dtype: f16", strict=True).adjusted == {"x": {"set": {"block": 64}}}
    assert ask(asked, "dtype: f16, block: 64", strict=True).ranked == ["x"]
    refused = ask(asked, "dtype: f16, block: 16", strict=True)
    assert refused.rejected == {"x": [Reason("adjustment", "block", ("block",), -1, 16)]}


def test_use_asks_the_other_candidate_too() -> None:
    asked = catalog(
        "{name: x, supports: {block: 1}, adjust: [{when: {dtype: f16}, set: {block: 1}, use: y}]}",
        "{name: y, supports: {size: 8, block: [1, 2]}}",
    )
    used = ask(asked, "dtype: f16, size: 8, block: 2")
    assert used.ranked == ["x", "y"]
    assert used.adjusted == {"x": {"set": {"block": 1}, "use": "y"}}
    refused = ask(asked, "dtype: f16, size: 9")
    assert refused.rejected["x"] == [Reason("adjustment", "", (), 0, "y")]
    assert ask(asked, "dtype: f16, size: 8", strict=True).ranked == ["y"]


POLICY = """
unlisted: excluded
policy:
  - {name: big, when: {size: {min: 100}}, order: [c, a/w, a]}
  - name: small
    when: {size: {max: 10}}
    unlisted: last
    order: [{candidate: c, when: {dtype: f16}}, {candidate: b, unless: {dtype: f16}}, a/w]
  - {name: other, when: {cc: ">=8"}, order: [b, a, b, a/v]}
"""
THREE = ("{name: a, variants: [{name: v}, {name: h, abstract: true}, {name: w}]}", "{name: b}", "{name: c}")


@pytest.mark.parametrize(
    ("request_", "environment", "rule", "ranked", "excluded"),
    [
        ("size: 100", GPU, "big", ["c", "a/w", "a/v"], ["b"]),
        ("size: 1, dtype: f16", GPU, "small", ["c", "a/w", "a/v", "b"], []),
        ("size: 1, dtype: f32", GPU, "small", ["b", "a/w", "a/v", "c"], []),
        ("size: 1", GPU, "small", ["a/w", "a/v", "b", "c"], []),  # open: neither entry holds
        ("", GPU, "other", ["b", "a/v", "a/w"], ["c"]),
        ("", "device: gpu", None, [], ["a/v", "a/w", "b", "c"]),  # unknown: the rule does not apply
    ],
)
def test_policy(
    request_: str, environment: str, rule: str | None, ranked: list[str], excluded: list[str]
) -> None:
    found = ask(catalog(*THREE, pack=POLICY), request_, environment)
    assert (found.policy_rule, found.ranked, found.excluded) == (rule, ranked, excluded)


def test_without_a_policy_the_catalog_gives_the_order() -> None:
    assert ask(catalog(*THREE)).ranked == ["a/v", "a/w", "b", "c"]


def test_a_pin_leaves_one_backend_and_overrides_an_exclusion() -> None:
    asked = catalog(*THREE, "{name: d, supports: {size: 1}}", pack=POLICY)
    assert ask(asked, "size: 100", backend="b").ranked == ["b"]
    assert ask(asked, "size: 100", backend="a").ranked == ["a/w", "a/v"]
    assert ask(asked, "size: 100", backend="a/v").ranked == ["a/v"]
    pinned = ask(asked, "size: 100", backend="d")
    assert (pinned.ranked, pinned.excluded, list(pinned.rejected)) == ([], [], ["d"])
    for name in ("e", "a/h"):
        with pytest.raises(ValueError, match="no candidate"):
            ask(asked, backend=name)


@pytest.mark.parametrize(
    ("request_", "environment"),
    [("sise: 1", GPU), ("quantized: true", GPU), ("device: gpu", GPU), ("dtype: f17", GPU), ("", "size: 1")],
)
def test_a_question_outside_the_vocabulary_is_an_error(request_: str, environment: str) -> None:
    with pytest.raises(ValueError, match=r"axis|derived|belong|cannot be"):
        ask(catalog("{name: x}"), request_, environment)


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "[on, yes, No, true, 010, 1.5, 9.10, '9.0', 2024-01-01, ~, null, 0x10, -3]"
    expected = ["on", "yes", "No", True, 10, 1.5, 9.1, "9.0", "2024-01-01", None, None, "0x10", -3]
    assert parse(text) == expected


def test_a_pack_is_read_in_order_of_file_names_with_its_own_vocabulary(tmp_path: Path) -> None:
    files = {
        "vocabulary.yaml": "{vocabulary: 1, axes: {size: {type: integer}, c: {type: choice, values: [a]}}}",
        "p/vocabulary.yaml": "{axes: {extra: {type: flag}, c: {values: {b: {tags: [t]}}}}}",
        "p/pack.yaml": "{pack: 1, name: p}",
        "p/zz.yaml": "{manifest: 1, name: first}",
        "p/b.yaml": "{manifest: 1, name: second, supports: {extra: true, c: b}}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    asked = load_pack(tmp_path, "p")
    assert decide(asked, {}, {}).ranked == ["second", "first"]
    assert decide(asked, {"extra": True, "c": "b"}, {}).ranked == ["second"]


def test_merging_vocabularies_leaves_the_base_alone() -> None:
    base = {"axes": {"c": {"type": "choice", "values": ["a"], "aliases": ["x"]}}}
    merged = merge_vocabularies(base, {"axes": {"c": {"values": ["b"], "aliases": ["y"], "default": "a"}}})
    assert list(merged["axes"]["c"]["values"]) == ["a", "b"]
    assert merged["axes"]["c"]["aliases"] == ["x", "y"]
    assert merged["axes"]["c"]["default"] == "a"
    assert base["axes"]["c"]["values"] == ["a"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(cases())
def test_every_candidate_of_a_random_catalog_has_one_place(case: Case) -> None:
    asked = Catalog(case.vocabulary, case.pack, case.manifests)
    for question in case.questions:
        found = decide(asked, question.request, question.environment, strict=question.strict)
        placed = [*found.ranked, *found.excluded, *found.rejected]
        listed = [candidate.id for candidate in asked.candidates.values() if not candidate.abstract]
        assert sorted(placed) == sorted(listed)
        assert all(found.rejected.values())
        assert set(found.values) == set(case.vocabulary["axes"])
