"""Stores: shards, manifest, ledger, lease, commit, and reading them back."""

from transforms.store.open import Store, open_store

__all__ = ["Store", "open_store"]
