"""Everything the jobs are made of, in layers: docs/architecture.md lists them."""
