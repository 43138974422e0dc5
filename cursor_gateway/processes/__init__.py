"""Law: the only place that starts and ends processes. It knows no agent."""
