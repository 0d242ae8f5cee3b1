"""Harnesses: what turns a run into turns of model and tool calls. Replaceable between two claims."""
