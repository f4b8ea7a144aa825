"""The same step computed in higher precision in parallel with the program: how large each operation's error is, and
what it leads to."""
