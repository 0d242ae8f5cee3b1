"""Puts the rooms together: the registry of agents and tools, the client, decisions of people, settings, composition."""
