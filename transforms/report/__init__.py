"""Reports on the runs of a store: their history, and a page with charts."""
