"""Chat message lists, as OpenAI and Anthropic write them. One reader understands both, for real files mix them."""
