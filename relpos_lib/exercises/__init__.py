"""Checks of the exercises: each prints a verdict and never raises."""
