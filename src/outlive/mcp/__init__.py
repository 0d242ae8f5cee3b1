"""Registered agents as an MCP server, where a long run is a task; and tools of other servers (extra `mcp`).

`outlive mcp` serves agents; `make_server` is for who wants a server inside a program of their own. What a client may do
is said by `Access`. Nothing of a task is in memory: any process that serves the tenant answers for any of them.
`ToolServer` is a server of others, whose tools agents call.
"""

try:
    import mcp as _sdk
except ImportError as error:  # pragma: no cover - the development tools bring it
    raise ImportError("outlive.mcp needs the extra mcp: pip install 'outlive[mcp]'") from error

from outlive.mcp.http import make_http
from outlive.mcp.reach import Http, Stdio
from outlive.mcp.server import make_server
from outlive.mcp.tools import Answer, ToolError, ToolServer
from outlive.mcp.view import Access

__all__ = ["Access", "Answer", "Http", "Stdio", "ToolError", "ToolServer", "make_http", "make_server"]

del _sdk
