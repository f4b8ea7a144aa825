"""The command line and the other public entry points: run, fix, show, explain, preflight, the notebook magic."""
