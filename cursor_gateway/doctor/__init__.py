"""Axis: what the doctor looks at. A check is a row of a table."""
