"""Stand-ins for the programs that the gateway starts: processes like any other, found on PATH."""

VERSION = "2026.09.18-fake"
