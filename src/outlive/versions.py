"""What a version of an agent can adopt of the runs of older ones, for the declaration of agents."""

from outlive.engine.rules import Adopts

__all__ = ["Adopts"]
