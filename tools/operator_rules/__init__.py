"""Measures from real kernels what every operator does with dtypes, and writes
``dtypetrace/tables/operator_rules.json``.

``samples`` makes the calls, ``observe`` runs them and notes what came of each function and operator, ``learn`` finds
the shortest rules that say the same, ``__main__`` puts them into the table.
"""
