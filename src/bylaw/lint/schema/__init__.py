"""The JSON Schema of the rule file, generated from the declarations in `dialects` and shipped for editors."""
