"""Claims that must hold of every catalog, tested on random ones."""
