"""An order desk as a command, with the `openai` package alone: reads the prompt, prints the answer.

The client finds the model in OPENAI_BASE_URL, which Bylaw points at its proxy.
"""

import json
import sys

import openai

client = openai.OpenAI(max_retries=0)
messages = [{"role": "user", "content": sys.stdin.read()}]
while True:
    try:
        message = client.chat.completions.create(model="desk-1", messages=messages).choices[0].message
    except openai.RateLimitError:
        print("Too many questions right now. Please try again later.")
        break
    if not message.tool_calls:
        print(message.content)
        break
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls:
        order = {"order_id": json.loads(call.function.arguments)["order_id"], "status": "shipped"}
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(order)})
