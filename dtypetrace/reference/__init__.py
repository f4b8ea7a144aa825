"""The same step in higher precision, beside the program's: what each operation loses, and what becomes of it."""
