"""wt.bench measures how faithful methods are on many inputs. Public names are listed in `__init__.pyi`."""

from whichtoken._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
