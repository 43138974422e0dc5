"""Law: the MCP server that agents call their client's tools by; it names no agent."""
