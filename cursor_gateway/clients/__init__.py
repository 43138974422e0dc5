"""Axis: one file for each client that `setup` knows."""
