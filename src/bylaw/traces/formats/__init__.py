"""A reader for each format: interprets records and passes what they say to the assembler. `catalogue` lists them."""
