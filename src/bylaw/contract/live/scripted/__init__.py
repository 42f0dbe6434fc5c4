"""A model that says what a file says: for contracts that must run anywhere, offline and the same each time.

```yaml
replies:
  - when: {contains: weather, last_role: user}
    tool_calls: [{name: get_weather, arguments: {city: Bern}}]
  - when: {last_role: tool}
    text: It is sunny in Bern.
  - text: I do not know.
```

The first reply whose `when` fits answers; `nth: 2` fits a conversation that holds one answer of the model already.
"""
