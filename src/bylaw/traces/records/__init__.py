"""From a file to records: open and decompress, divide into lines or elements, decode, and locate problems."""
