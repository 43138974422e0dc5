"""Axis: the demo agent, a program that keeps the CLI's contract, with no model behind it."""
