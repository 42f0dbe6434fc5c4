"""Shared parts of the reports of all jobs. A renderer decides the layout of a report, never its content.

`output`: formats, files and colours. `command_line`: command groups and the options that several commands have.
`diagnostics`: problems in the user's own files, in every format, and JSON documents. `progress`: progress bars.
`text`: pieces of documents for people.
"""
