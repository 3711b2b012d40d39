"""The papers' protocols and ablations, with the options that only they need."""
