"""Writes OpenTelemetry's spans: OTLP as JSON lines, in the vocabulary for generative AI."""
