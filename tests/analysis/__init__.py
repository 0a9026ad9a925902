"""Tests of the analysis: against the engine, against enumeration, and against seeded faults."""
