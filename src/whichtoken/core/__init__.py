"""What every part speaks of: traces and needs, objectives, methods by name, tensor formulas, removals."""
