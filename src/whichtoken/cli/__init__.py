"""The command line, built with Typer: parse, call the library, print. Torch is imported only where needed."""
