"""Corners that random catalogs reach seldom: small catalogs, each asked every question of a product of values.

Each names the mistake it would show. The expected answer is the plain interpreter's.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import pytest
import yaml

from tests.plain import interpreter as plain
from tests.plain.loading import Loader
from tests.plain.strategies import Case, Question
from tests.property.test_engine_matches_plain import compare, compiled


class Corner(NamedTuple):
    """`fields` and `facts`: values to try for each axis; "-" leaves the axis out."""

    axes: str
    manifests: str
    fields: str = "{}"
    facts: str = "{}"
    policy: str = "[]"


CORNERS = {
    "a fact that applies only where the request says so": Corner(
        "{window: {type: pair, default: [0, 0]},"
        " level: {type: integer, of: environment, default: 1, applies_when: {window: {given: true}}}}",
        "[{name: m, requires: {level: 0}}, {name: n, requires: {level: {in: [1], required: true}}}]",
        "{window: [-, null, [0, 1]]}",
        "{level: [-, 0, 1, null]}",
    ),
    "an axis that does not apply here, or perhaps": Corner(
        "{device: {type: choice, of: environment, values: [cpu, gpu]}, size: {type: integer},"
        " fast: {type: flag, default: true, applies_when: {device: gpu}},"
        " level: {type: integer, of: environment, default: 3, applies_when: {device: gpu, size: 1}}}",
        "[{name: m}, {name: n, supports: {fast: true}, requires: {level: 3}},"
        " {name: o, rules: [{when: {fast: false}, reject: no}]}, {name: p, rules: [{when: {level: 3}, reject: no}]}]",
        "{fast: [-, true, false], size: [-, 1, 2]}",
        "{device: [-, cpu, gpu, null], level: [-, 4]}",
    ),
    "a default that follows another axis, on both sides": Corner(
        "{a: {type: integer, of: environment}, b: {type: integer, of: environment, default: {same_as: a}},"
        " size: {type: integer}, size_v: {type: integer, default: {same_as: size}}}",
        "[{name: m, requires: {b: 1}, supports: {size_v: {in: [1], required: true}}},"
        " {name: n, rules: [{when: {size_v: 2, b: 2}, reject: no}]}]",
        "{size: [-, 1, 2, null], size_v: [-, 1, 2, null]}",
        "{a: [-, 1, 2, null], b: [-, 1, 2, null]}",
    ),
    "a candidate without a place on this machine does not accept": Corner(
        "{device: {type: choice, of: environment, values: [cpu, gpu]}, size: {type: integer}}",
        "[{name: base, requires: {device: gpu}, supports: {size: 1}},"
        " {name: m, rules: [{when: {not: {accepts: base}}, reject: no}]},"
        " {name: n, rules: [{when: {not: {accepts: base}, size: 1}, reject: no}]},"
        " {name: o, rules: [{require: {accepts: base}, when: {size: 1}, reject: no}]},"
        " {name: p, rules: [{when: {accepts: [base, m]}, reject: no}]}]",
        "{size: [-, 1, 2]}",
        "{device: [-, cpu, gpu]}",
        "[{name: one, when: {not: {accepts: base}}, order: [n]}, {name: two, when: {accepts: base}, order: [o]}]",
    ),
    "a decision list over facts nobody knows and fields left open": Corner(
        "{device: {type: choice, of: environment, values: [cpu, gpu]}, size: {type: integer},"
        " grade: {type: integer, derive: {case: [{when: {any: [{device: gpu}, {size: 1}]}, value: 1},"
        " {when: {device: gpu, size: 2}, value: 2}], else: 3}},"
        " both: {type: flag, derive: {when: {device: gpu, size: 2}}}}",
        "[{name: m, supports: {grade: 1}}, {name: n, supports: {grade: [2, 3]}},"
        " {name: o, rules: [{when: {both: true}, reject: no}]}, {name: p, rules: [{when: {both: false}, reject: no}]}]",
        "{size: [-, 1, 2, 3]}",
        "{device: [-, cpu, gpu]}",
    ),
    "arithmetic over what is open and what is unknown": Corner(
        "{a: {type: integer, of: environment}, size: {type: integer},"
        " sum: {type: integer, derive: {sum: [a, size]}}, rest: {type: integer, derive: {modulo: [size, a]}}}",
        "[{name: m, supports: {sum: {max: 3}}}, {name: n, rules: [{when: {sum: 4}, reject: no}]},"
        " {name: o, supports: {rest: {in: [0], required: true}}}]",
        "{size: [-, 2, 3]}",
        "{a: [-, 0, 2, null]}",
    ),
    "an order with conditions on unknown facts": Corner(
        "{device: {type: choice, of: environment, values: [cpu, gpu]}, size: {type: integer}}",
        "[{name: m}, {name: n}, {name: o}]",
        "{size: [-, 1, 2]}",
        "{device: [-, cpu, gpu, null]}",
        "[{name: r, order: [{candidate: o, unless: {device: gpu}}, {candidate: n, when: {size: 1}, unless: {device: cpu}},"
        " {candidate: m, unless: {size: 2}}]}]",
    ),
    "warnings, strict and not": Corner(
        "{size: {type: integer}, cc: {type: version, of: environment}}",
        "[{name: m, rules: [{warn: soft, when: {size: 1}}, {warn: hard, when: {size: 2}, strict: true},"
        ' {warn: fact, unless: {cc: ">=9"}, strict: true}, {warn: need, require: {size: 3}}]}]',
        "{size: [-, 1, 2, 3]}",
        '{cc: [-, "8.0", "9.0", null]}',
    ),
    "adjustments in order, and what strict selection thinks of them": Corner(
        "{size: {type: integer}, block: {type: integer, default: 16}, sinks: {type: flag},"
        " twice: {type: integer, derive: {sum: [block, block]}}}",
        "[{name: m, supports: {block: [64]}, adjust: [{when: {size: 1}, set: {block: 32}}, {when: {block: 32}, set: {block: 64}}]},"
        " {name: n, supports: {twice: 32}, adjust: [{when: {size: 2}, set: {block: 8}}, {when: {twice: 16}, set: {block: 16}}]},"
        " {name: o, adjust: [{when: {sinks: true}, set: {sinks: false}}]},"
        " {name: p, adjust: [{set: {size: 4}}], rules: [{require: {size: {in: [4], required: true}}, reject: no}]},"
        " {name: q, rules: [{require: {accepts: [m, p]}, reject: no}]}]",
        "{size: [-, 1, 2, 4, null], block: [-, 16, 64, null], sinks: [-, true]}",
    ),
    "an adjustment of a field that does not apply": Corner(
        "{size: {type: integer}, block: {type: integer, applies_when: {size: 1}}}",
        "[{name: m, supports: {block: {in: [2], required: true}}, adjust: [{set: {block: 2}}]},"
        " {name: n, adjust: [{set: {block: 2}}, {set: {size: 1}}]}]",
        "{size: [-, 1, 2], block: [-, 1, 2]}",
    ),
    "replacements, chained, on the changed request": Corner(
        "{size: {type: integer}, kind: {type: choice, values: [a, b], undeclared: none}}",
        "[{name: m, supports: {size: 1}}, {name: n, adjust: [{use: m}]}, {name: o, adjust: [{use: n}]},"
        " {name: p, supports: {kind: any}, adjust: [{use: m}, {when: {size: 1}, set: {kind: a}}]},"
        " {name: q, supports: {kind: any}, adjust: [{when: {size: 2}, use: m, set: {size: 1}}]}]",
        "{size: [-, 1, 2], kind: [-, a]}",
    ),
    "an adjustment where another candidate accepts": Corner(
        "{size: {type: integer}}",
        "[{name: m, supports: {size: [1, 2]}, rules: [{warn: w, when: {size: 2}, strict: true}]},"
        " {name: n, adjust: [{when: {accepts: m}, set: {size: 3}}]},"
        " {name: o, adjust: [{when: {accepts: n}, use: m}]},"
        " {name: p, supports: {size: 3}, rules: [{require: {accepts: n}, reject: no}]}]",
        "{size: [-, 1, 2, 3, 4]}",
    ),
    "packages in every state": Corner(
        "{packages: {type: packages, of: environment}}",
        '[{name: a, requires: {packages: {torch: ">=2"}}}, {name: b, requires: {packages: {torch: any}}},'
        " {name: c, requires: {packages: {torch: absent}}},"
        ' {name: d, rules: [{when: {packages: {torch: ["<2", ">=3"]}}, reject: no}]},'
        ' {name: e, rules: [{require: {packages: {torch: ">=2"}}, reject: no}]},'
        " {name: f, rules: [{when: {packages: {torch: absent}}, warn: w}]},"
        ' {name: g, known_wrong: [{when: {packages: {torch: any}}, until: {packages: {torch: ">=2.5"}}, reject: no}]},'
        ' {name: h, requires: {packages: {torch: ">=1", other: absent}},'
        '  variants: [{name: v}, {name: w, requires: {packages: {torch: ">=3"}}}]}]',
        facts="{packages: [-, {}, {torch: {version: '1', state: usable}}, {torch: {version: '2.5', state: usable}},"
        " {torch: {version: null, state: usable}}, {torch: {version: '3', state: broken import}},"
        " {torch: {version: '3', state: missing}}, {torch: {version: '3', state: unknown}}]}",
    ),
    "rules that variants inherit": Corner(
        "{size: {type: integer}}",
        "[{name: m, rules: [{when: {size: 1}, reject: r}, {when: {size: 2}, reject: r, variants: [v]},"
        " {when: {size: 3}, reject: r, variants: [w]}], adjust: [{when: {size: 5}, set: {size: 1}, variants: [v]}],"
        " variants: [{name: w, extends: v, rules: [{when: {size: 4}, reject: r}]}, {name: v, abstract: true},"
        " {name: x}]}]",
        "{size: [-, 1, 2, 3, 4, 5]}",
    ),
}


def parse(text: str) -> Any:
    """Raw YAML."""
    return yaml.load(text, Loader=Loader)


def choices(text: str) -> list[dict[str, Any]]:
    """Every way to choose a value for each axis, "-" being to leave it out."""
    table = parse(text)
    return [
        {axis: value for axis, value in zip(table, chosen, strict=True) if value != "-"}
        for chosen in product(*table.values())
    ]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("unlisted", ["last", "excluded"])
@pytest.mark.parametrize("name", CORNERS)
def test_a_corner(name: str, unlisted: str, strict: bool) -> None:
    corner = CORNERS[name]
    axes = {axis: {"of": "request", **entry} for axis, entry in parse(corner.axes).items()}
    for entry in axes.values():
        if "derive" in entry:
            del entry["of"]
    pack = {"pack": 1, "name": "random", "unlisted": unlisted, "policy": parse(corner.policy)}
    manifests = [{"manifest": 1, **manifest} for manifest in parse(corner.manifests)]
    case = Case({"vocabulary": 1, "axes": axes}, pack, manifests, [])
    catalog = compiled(case)
    interpreted = plain.Catalog(case.vocabulary, case.pack, case.manifests)
    backends: list[str | None] = [None, *(manifest["name"] for manifest in manifests[-1:])]
    for request, environment, backend in product(choices(corner.fields), choices(corner.facts), backends):
        compare(catalog, interpreted, Question(request, environment, backend, strict))
