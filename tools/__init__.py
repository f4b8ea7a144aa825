"""Programs for those who work on dtypetrace; none of them is installed."""
