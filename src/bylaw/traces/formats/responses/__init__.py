"""What OpenAI's Responses API takes and gives: flat items, or whole responses with their `output`."""
