"""All sections of a rule file at once: `bylaw lint`, `bylaw schema` and `bylaw explain`."""
