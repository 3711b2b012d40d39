"""The papers' protocols and ablations, with the choices that only they need."""
