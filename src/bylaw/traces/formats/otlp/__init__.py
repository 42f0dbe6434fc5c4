"""OpenTelemetry spans and logs as collectors write them: OTLP as JSON lines, or as length-prefixed protobuf."""
