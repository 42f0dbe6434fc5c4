"""The text of every response is JSON that the schema accepts.

The text must be JSON by RFC 8259: `NaN` and `Infinity` are not. Turns that call tools and say nothing are skipped. A
`$ref` to another file or address is refused, and patterns must do without look-around and back-references. `format`
(`date`, `email`, `uuid`, …) only describes a value, as in JSON Schema itself; with `check_formats: true` it is checked.

Vacuous when no response has text. Inconclusive when the content of a response was not recorded, calls or not. One
finding per response, naming the path in it that is at fault. With `when`, only matching turns are judged.
"""

from __future__ import annotations

from bylaw.model.demand import Always, FitsSchema
from bylaw.rules.params import FLAG, SCHEMA, SCHEMA_PATH, Param, Values

PARAMS = (
    Param(
        "schema",
        SCHEMA,
        "the JSON Schema, written out or as the path of a file (relative to the rule file)",
        required=True,
        instead={"schema_path": SCHEMA_PATH},
    ),
    Param("check_formats", FLAG, "whether `format` in the schema is checked"),
)

SYNONYMS = "json_schema must_match_schema output_schema"

EXAMPLE = """\
- id: structured-decision
  kind: must_match_json_schema
  scope: session
  params:
    schema:
      type: object
      required: [decision]
      properties:
        decision: { enum: [approve, deny] }
"""


def lower(params: Values) -> Always:
    return Always(FitsSchema(params["schema"], formats=params.get("check_formats", False)))
