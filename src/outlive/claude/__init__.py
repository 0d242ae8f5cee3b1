"""The Claude Agent SDK on this store: where it keeps what its agents have said. Needs the extra `claude`."""

from importlib.util import find_spec

if find_spec("claude_agent_sdk") is None:
    raise ImportError("outlive.claude needs the Claude Agent SDK: pip install 'outlive[claude]'")

from outlive.claude.transcripts import OutliveSessionStore

__all__ = ["OutliveSessionStore"]
