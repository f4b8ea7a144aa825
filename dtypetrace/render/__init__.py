"""Every rendering of a recording: console, HTML, drawings, frames, notebook. Never touches torch."""
