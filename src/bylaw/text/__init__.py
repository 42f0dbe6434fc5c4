"""Text: measures (similarity, refusals, prices of tokens) and redaction."""
