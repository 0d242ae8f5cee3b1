"""Registered agents as an MCP server, where a long run is a task (extra `mcp`).

`outlive mcp` serves them; `make_server` is for who wants one inside a program of their own. What a client may do is
said by `Access`. Nothing of a task is in memory: any process that serves the tenant answers for any of them.
"""

try:
    import mcp as _sdk
except ImportError as error:  # pragma: no cover - the development tools bring it
    raise ImportError("outlive.mcp needs the extra mcp: pip install 'outlive[mcp]'") from error

from outlive.mcp.http import make_http
from outlive.mcp.server import make_server
from outlive.mcp.view import Access

__all__ = ["Access", "make_http", "make_server"]

del _sdk
