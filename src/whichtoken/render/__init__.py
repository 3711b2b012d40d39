"""Results as terminal output, HTML, LaTeX and figures. Renders plain records and never imports models."""
