"""One reader a format: what its records say, told to the assembler."""
