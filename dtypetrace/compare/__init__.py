"""Two recordings compared, many ranks joined, a plan written down: recordings alone, no torch."""
