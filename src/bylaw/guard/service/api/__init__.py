"""The JSON API: `/v1/…`.

Each endpoint is declared once (`declare.Group`): its path, who may use it, what it takes and returns. Requests are
validated by that declaration, and `openapi` makes the document of it.
"""
