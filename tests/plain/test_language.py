"""Hand-written cases for every row of the language's tables: limits, rules, senses, derived axes."""

from __future__ import annotations

import pytest

from .axes import UNKNOWN, Raw
from .interpreter import Reason
from .small import GPU, ask, catalog


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
