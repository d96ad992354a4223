"""The work of a worker, without Beam: embed units, build and update indexes, gather, fit."""
