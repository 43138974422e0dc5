"""Axis: who answers. A new agent is a folder here."""
