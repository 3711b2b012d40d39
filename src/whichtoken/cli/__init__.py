"""The command line: parses, calls the library, prints. The door of Typer. Torch is imported only where needed."""
