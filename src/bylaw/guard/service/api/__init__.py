"""The JSON API: `/v1/…`.

Each endpoint is declared once (`endpoints.Group`): its path, who may use it, what it takes and returns. Requests are
validated by that declaration, and the OpenAPI document is made of it.
"""
