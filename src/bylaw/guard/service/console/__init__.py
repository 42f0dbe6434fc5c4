"""The operator console: pages for people, served by the process that decides. Everything on them is in the API too.

- `routes`: the paths
- `visit`: one request: who asks, the frame of a page, how changes and refusals are answered
- `desk`, `traffic`, `rulebook`, `registry`: the views, by what people do: answer, watch, write rules, look things up
- `render`, `plots`, `changes`: pure functions from values to text: templates and filters, SVG, differences
- `templates`, `static`: Jinja2 templates; the style sheet, one script, and htmx with its licence
"""

from __future__ import annotations

from bylaw.guard.service.console.routes import console_routes, error_page

__all__ = ["console_routes", "error_page"]
