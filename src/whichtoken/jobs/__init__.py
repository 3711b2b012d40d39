"""wt.jobs explains and measures whole corpora, on worker processes or on Ray. Public names are in `__init__.pyi`."""

from whichtoken._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
