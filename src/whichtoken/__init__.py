"""whichtoken: which tokens influence a Transformer's output, and how far that answer can be trusted.

The public names are listed in `__init__.pyi` and imported on first use.
"""

from whichtoken._lazy import attach

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = attach(__name__, __file__)
__all__ += ["__version__"]
