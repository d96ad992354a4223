"""Stores: shards, manifest, ledger, lease, commit, and reading them back."""

from sentence_beam.transforms.store.open import Store, open_store

__all__ = ["Store", "open_store"]
