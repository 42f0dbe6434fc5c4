"""One renderer a file. A renderer decides how a report looks, never what it says."""
