"""Every rendering of a recording: console, HTML, frames, notebook. Never imports torch."""
