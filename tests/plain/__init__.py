"""A second, slow implementation of the selection language, used as the measure of the compiled engine."""
