"""Concepts that every part uses: traces and needs, picks, methods by name, tensor formulas, removals."""
