"""Text: what is measured in it (similarity, refusals, prices of tokens) and what is removed from it (redaction)."""
