"""Renderers of reports: siblings over the same evidence, none privileged."""
