"""Reads files of other formats that Bylaw exported. Each event's own line travels in a slot of the format, without the
parts that the format stores itself, so that every event is read back as it was written.
"""
