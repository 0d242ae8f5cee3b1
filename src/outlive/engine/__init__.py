"""Drives runs: claims, replays, sends, settles, suspends. One file per idea; knows stores by their port alone."""
