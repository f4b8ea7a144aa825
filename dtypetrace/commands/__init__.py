"""The command line and the other public doors: run, fix, show, explain, preflight, the notebook magic."""
