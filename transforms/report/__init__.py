"""What a store tells of its runs: their history, and a page with charts."""
