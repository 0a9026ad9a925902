"""`docs/reference/environments.md`: the preset machines, and what the software profiles install on them."""

from __future__ import annotations

from tests.docs.pages import MANIFESTS, manifest
from tests.docs.pages.markdown import code, escape, head, listed, literal, table

__all__ = ["pages"]

#: Facts with a column of their own.
COLUMNS = ("device", "compute_capability", "gcn_arch", "cpu_arch")


def pages() -> dict[str, str]:
    """The page."""
    lines = head(
        "Machines",
        "manifests/environments/ and manifests/software.yaml",
        "Machines that `--on NAME` and `Environment.preset(NAME)` know, so that a question about one needs none. A preset is the facts "
        "of a device and a software profile; [environments and snapshots](../environments.md) says how to change it or write your own.",
    )
    found = [
        manifest(f"environments/{path.name}") for path in sorted((MANIFESTS / "environments").glob("*.yaml"))
    ]
    lines += ["## Presets", ""]
    rows = []
    for preset in found:
        facts = preset["facts"]
        names = listed([preset["name"], *preset.get("aliases", ())])
        shown = [escape(str(facts.get(key, ""))) for key in COLUMNS]
        others = ", ".join(
            code(f"{k}={literal(v) if not isinstance(v, str) else v}")
            for k, v in facts.items()
            if k not in (*COLUMNS, "device_name")
        )
        rows.append((names, escape(preset.get("title", "")), *shown, others, _link(preset.get("source"))))
    lines += table(("`--on`", "what", *(code(c) for c in COLUMNS), "other facts", "source"), rows)
    notes = [(p["name"], p[key]) for p in found for key in ("doc", "note") if key in p]
    if notes:
        lines += [f"- {code(name)}: {escape(text)}" for name, text in notes] + [""]
    lines += _software()
    return {"reference/environments.md": "\n".join(lines).rstrip() + "\n"}


def _link(source: str | None) -> str:
    """An address as a link, named by its host."""
    if not source or not source.startswith("http"):
        return escape(source or "")
    return f"[{source.split('/')[2].removeprefix('www.')}]({source})"


def _software() -> list[str]:
    raw = manifest("software.yaml")
    lines = ["## Profiles", ""]
    for name, profile in raw["profiles"].items():
        packages = profile["packages"]
        what = "every package below that its device takes" if packages == "all" else listed(packages)
        lines.append(f"- `--profile {name}`{' (the default)' if name == 'full' else ''}: {what}")
        for entry in profile.get("facts", ()):
            when = f" where {code(literal(entry['when']))}" if "when" in entry else ""
            note = f" {escape(entry['note'])}" if "note" in entry else ""
            lines.append(f"    - {code(literal(entry['set']))}{when}.{note}")
    lines += ["", "## Packages", ""]
    rows = []
    for name, package in raw["packages"].items():
        when = code(literal(package["when"])) if "when" in package else "any"
        install = code(package["install"]) if "install" in package else ""
        rows.append(
            (
                code(name),
                package["version"],
                when,
                install,
                _link(package.get("source")),
                escape(package.get("note", "")),
            )
        )
    return lines + table(("package", "version", "on", "installed by", "source", "note"), rows)
