"""Axis: one file for each family of routes."""
