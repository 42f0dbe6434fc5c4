// An order desk in Node, without packages: reads the prompt, prints the answer. Node before 24 does not read
// HTTP_PROXY, so the address of the model comes from OPENAI_BASE_URL, which Bylaw points at its proxy.
import { readFileSync } from "node:fs";

const messages = [{ role: "user", content: readFileSync(0, "utf8") }];

async function ask() {
  const reply = await fetch(`${process.env.OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${process.env.OPENAI_API_KEY}` },
    body: JSON.stringify({ model: "desk-1", messages }),
  });
  if (!reply.ok) throw new Error(`status ${reply.status}`);
  return (await reply.json()).choices[0].message;
}

for (;;) {
  let message;
  try {
    message = await ask();
  } catch (error) {
    console.log(`Order A-17 is shipped, as far as I remember (${error.message}).`); // wrong: it invents an answer
    break;
  }
  if (!message.tool_calls) {
    console.log(message.content);
    break;
  }
  messages.push(message);
  for (const call of message.tool_calls) {
    const { order_id } = JSON.parse(call.function.arguments);
    const content = JSON.stringify({ order_id, status: "shipped" });
    messages.push({ role: "tool", tool_call_id: call.id, content });
  }
}
