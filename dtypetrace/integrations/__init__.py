"""dtypetrace inside other programs: pytest and the libraries that train. Nothing in the package imports these files."""
