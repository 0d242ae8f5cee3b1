"""Rules of this project that no linter knows, one rule per module.

Each module has `problems(root)`: what breaks the rule in the tree at `root`, one line a person can act on per problem.
Checks read files and import nothing of the project, so a tree that does not import can still be checked.
"""
