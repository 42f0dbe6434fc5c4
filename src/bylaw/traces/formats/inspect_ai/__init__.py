"""inspect_ai's logs: samples as sessions, in an archive or in one JSON value, each sample whole or in chunks."""
