"""The nouns of the system, its states and pure transitions, the error tree and the clock. Imports no other room."""
