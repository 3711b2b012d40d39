"""wt.jobs explains and measures whole corpora, in parts, on worker processes or on Ray."""
