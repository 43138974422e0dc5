"""Families of models, for clients that ask for a model which the account does not have."""

from __future__ import annotations

from cursor_gateway.core.models import Families

# Claude Code asks for models by names of its own, such as `claude-sonnet-5-20260301`.
MODEL_FAMILIES: Families = {"claude": ("opus", "sonnet", "haiku", "fable")}
