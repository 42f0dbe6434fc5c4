"""Files of other formats that Bylaw wrote. Beside what everyone reads there, they carry each event's own line, less
what the format holds itself, so that what is read back is what was written.
"""
