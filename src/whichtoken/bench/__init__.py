"""Benchmarks: methods x metrics on many texts, with intervals and tests, resumable; and what comes of them."""
