"""An order desk behind HTTP, with Starlette: `starlette_desk.py PORT`. It streams its answer as server-sent events.

It asks its model with httpx2 and finds the model in OPENAI_BASE_URL, which Bylaw points at its proxy.
"""

import json
import os
import sys

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route


async def answer(prompt: str) -> str:
    messages = [{"role": "user", "content": prompt}]
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    async with httpx2.AsyncClient(verify=False) as client:
        while True:
            reply = await client.post(url, json={"model": "desk-1", "messages": messages})
            if reply.is_error:
                return "I cannot answer right now. Please try again later."
            message = reply.json()["choices"][0]["message"]
            if not message.get("tool_calls"):
                return message["content"]
            messages.append(message)
            for call in message["tool_calls"]:
                order = {"order_id": json.loads(call["function"]["arguments"])["order_id"], "status": "shipped"}
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(order)})


async def chat(request):
    said = await answer((await request.json())["input"])
    events = (f"data: {json.dumps({'delta': said[at : at + 8]})}\n\n" for at in range(0, len(said), 8))
    return StreamingResponse(events, media_type="text/event-stream")


app = Starlette(routes=[Route("/chat", chat, methods=["POST"])])

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical")
