"""qualify: the gate between a faster GPU kernel and the dispatcher that selects it."""

__version__ = "0.1.0"
