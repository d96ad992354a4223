"""Documents cut into pieces that can be embedded, found and quoted; `cut` is its entry."""
