"""What the hooks use to turn a running program into records. Knows torch and private torch; knows no rule and no view."""
