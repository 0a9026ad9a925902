"""Inputs that nobody vouches for, by the million: `python -m tests.fuzz` by hand, a few seconds of it in the suite."""
