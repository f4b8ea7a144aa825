"""What the hooks use: recorder, marks, births, places, values, updates, patches, workers; private torch."""
