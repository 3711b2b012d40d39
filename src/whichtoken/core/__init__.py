"""Concepts that every part uses: traces and needs, objectives, methods by name, tensor formulas, removals."""
