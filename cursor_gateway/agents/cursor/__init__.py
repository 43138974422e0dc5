"""Axis: Cursor's print CLI, `cursor-agent --print`, as an agent."""
