"""Scores of encoders on tasks: reading tasks, encoding with many poolers, metrics."""
