"""Scores of encoders on tasks."""
