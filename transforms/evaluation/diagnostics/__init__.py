"""Figures of vectors, tokens and models: what they look like, mostly without any label."""
