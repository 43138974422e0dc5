"""Axis: what the doctor looks at of the CLI. A check is a row of a table."""
