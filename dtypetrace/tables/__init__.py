"""The facts that all packages share: dtypes, operators, finding codes, and how torch words a refusal."""
