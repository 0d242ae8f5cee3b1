"""Engines of others beside ours, under one workload: `python -m bench.peers` measures, `--write` writes the page.

Each engine is one program, run by the interpreter of its own environment and told what to do in lines of JSON, so that
a round can take them in turns. What its steps leave in a file is what is measured: every engine by the same means.
"""
