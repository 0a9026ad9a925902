"""The selector inside other libraries, one module a library; each imports its library when it is imported itself."""
