"""A store served by HTTP, for trying it and for a team's own use: a page, and answers as JSON."""
