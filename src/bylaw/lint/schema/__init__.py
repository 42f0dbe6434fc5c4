"""The JSON Schema of the rule file, generated from the declarations in `bylaw.rules` and shipped for editors."""
