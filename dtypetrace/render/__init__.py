"""Every rendering of a recording: console, HTML, drawings, frames, notebook. Never imports torch."""
