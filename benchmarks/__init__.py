"""Measurements anybody can repeat: each module prints ratios within one run, beside the machine and
the versions.
"""
