"""Pictures of results: terminal, HTML, LaTeX, figures. They read attributions and know nothing of models."""
