"""LangGraph on this store: a checkpointer, a store, and tools whose calls are recorded. Needs the extra `langgraph`."""

from importlib.util import find_spec

if find_spec("langgraph") is None:
    raise ImportError("outlive.langgraph needs LangGraph: pip install 'outlive[langgraph]'")

from outlive.langgraph.items import OutliveStore
from outlive.langgraph.saver import OutliveSaver
from outlive.langgraph.tools import ToolNode
from outlive.langgraph.writer import one_writer

__all__ = ["OutliveSaver", "OutliveStore", "ToolNode", "one_writer"]
