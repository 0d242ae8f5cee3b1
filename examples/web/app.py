"""The application: where a worker finds its agent. Constructing it does no I/O."""

from outlive import Outlive

app: Outlive[None] = Outlive(include=["examples.web.agent", "examples.web.press"])
