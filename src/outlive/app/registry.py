"""What an application has registered: agents and tools by name, and the build of the code that defines them."""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Sequence

from outlive.app.sources import source_digest
from outlive.engine.definition import AgentSpec, ToolSpec
from outlive.model.errors import DuplicateName, Refused, UnknownAgent


class Registry:
    """Agents and tools of one application.

    Registering does no I/O; `load` imports the modules that are to be included.
    """

    def __init__(self, include: Sequence[str] = ()) -> None:
        self.agents: dict[str, AgentSpec] = {}
        self.tools: dict[str, ToolSpec] = {}
        self.include = tuple(include)
        self.unnamed: list[Callable[[str], ToolSpec | None]] = []
        """What there is to decide about an operation of a name that nobody registers: a request to a model, a tool that
        only a server can name. None where it is none of them.
        """

    def add_tool(self, tool: ToolSpec) -> None:
        """Raises DuplicateName."""
        known = self.tools.setdefault(tool.name, tool)
        if known is not tool:
            raise DuplicateName(kind="tool", name=tool.name, first=known.where, second=tool.where)

    def add_agent(self, agent: AgentSpec) -> None:
        """Raises DuplicateName."""
        known = self.agents.setdefault(agent.name, agent)
        if known is not agent:
            raise DuplicateName(kind="agent", name=agent.name, first=known.where, second=agent.where)

    def agent(self, name: str) -> AgentSpec:
        """Raises UnknownAgent, which lists what there is."""
        if name not in self.agents:
            raise UnknownAgent(name=name, known=tuple(sorted(self.agents)))
        return self.agents[name]

    def tool(self, name: str) -> ToolSpec | None:
        """The tool of that name, also one that was made of what compensates another."""
        undoing = (one.compensation for one in self.tools.values() if one.compensation is not None)
        known = self.tools.get(name) or next((one for one in undoing if one.name == name), None)
        return known or next((one for find in self.unnamed if (one := find(name)) is not None), None)

    def load(self) -> None:
        """Import the included modules. Raises Refused naming the module that cannot be imported."""
        for module in self.include:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise Refused(what=f"include={module!r}", why=f"it cannot be imported: {error}") from error

    def build(self) -> str:
        """A digest of the code that agents and tools are made of: what tells two releases of it apart.

        Seen are the source files of the packages that define them, and for a module outside of any package what was
        imported from its directory. What other packages do is not seen: the setting `build` says it all.
        """
        functions = [one.source for one in self.agents.values()] + [one.source for one in self.tools.values()]
        functions += [one.compensation.source for one in self.tools.values() if one.compensation is not None]
        adopted = [rule.state for agent in self.agents.values() for rule in agent.adopts.values()]
        functions += [one for one in adopted if one is not None]
        files = {inspect.getsourcefile(inspect.unwrap(fn)) for fn in functions}
        digest = hashlib.sha256()
        for agent in sorted(self.agents.values(), key=lambda one: one.name):
            digest.update(f"{agent.name}={agent.version};".encode())
        digest.update(source_digest(frozenset(name for name in files if name)))
        return digest.hexdigest()[:12]
