"""The program's text: expressions, edits, patches. Standard library only."""
