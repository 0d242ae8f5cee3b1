"""Where logs and runs live: one port of three small protocols, one adapter per database behind it."""
