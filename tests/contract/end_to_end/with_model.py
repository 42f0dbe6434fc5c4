"""An agent that asks a model, once more where it fails: prints what it got. The prompt is its argument."""

import json
import os
import sys
import urllib.request


def ask(prompt):
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


said = []
for _ in range(int(os.environ.get("ASKS", "1"))):
    try:
        answer = ask(sys.argv[1])
        said.append(answer if answer else "(nothing)")
    except Exception as error:
        said.append(f"failed: {type(error).__name__}")
print("\n".join(said))
