"""The helper process of the bubblewrap backend: owns mounts and processes of sandboxes, and dies with its owner.

Runs isolated from the environment (`python -I -S`) and imports the standard library alone, little of it: it forks
often, so it stays small.
"""
