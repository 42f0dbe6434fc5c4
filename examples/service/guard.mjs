// Ask the guard's service before each tool call. Node 18 or later, no packages.
//
//   bylaw guard serve --policy guard.yaml --store guard.db
//   BYLAW_KEY=$(bylaw guard keys create bot --store guard.db --scope agent --agent support) node guard.mjs

const URL_OF_SERVICE = process.env.BYLAW_URL ?? "http://127.0.0.1:8787";
const KEY = process.env.BYLAW_KEY;

/** One request; an error of the service becomes an exception. */
async function post(path, body) {
  const response = await fetch(new URL(path, URL_OF_SERVICE), {
    method: "POST",
    headers: { authorization: `Bearer ${KEY}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(5_000),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error.message);
  return answer;
}

/**
 * Runs a tool if the guard allows the call. Without an answer nothing runs: whatever `post` throws goes to the caller.
 * @param {string} session the user's task
 * @param {Record<string, (args: any) => Promise<unknown>>} tools by name
 */
export async function call(session, tools, tool, args) {
  let decision = await post("/v1/decide", { session, tool, arguments: args });
  if (decision.action === "pause") decision = await resume(session, tool, args, decision);
  if (decision.action !== "allow") return { denied: decision.reason, advice: decision.advice };
  // A person may have changed the call: run `decision.call`, and nothing else.
  const { call } = decision;
  let content, is_error = false;
  try {
    content = await tools[call.tool](call.arguments);
  } catch (problem) {
    [content, is_error] = [String(problem), true];
  }
  await post("/v1/record", { session, call_id: decision.call_id, content, is_error });
  return content;
}

/** Waits for a person, and asks again with the review. */
async function resume(session, tool, args, paused) {
  const path = `/v1/reviews/${paused.review}/wait?timeout=${process.env.BYLAW_WAIT ?? 30}`;
  const response = await fetch(new URL(path, URL_OF_SERVICE), { headers: { authorization: `Bearer ${KEY}` } });
  const answer = await response.json();
  if (answer.status !== "approved") return paused;
  const edited = answer.call ?? { tool, arguments: args };
  return post("/v1/decide", { session, tool: edited.tool, arguments: edited.arguments, review: paused.review });
}

const tools = {
  lookup_order: async ({ order }) => ({ order, total: 199 }),
  issue_refund: async ({ amount }) => `${amount} refunded`,
};
const session = process.argv[2] ?? "ticket-7";
console.log(JSON.stringify(await call(session, tools, "lookup_order", { order: "A-23" })));
console.log(JSON.stringify(await call(session, tools, "issue_refund", { order: "A-23", amount: 199 })));
console.log(JSON.stringify(await call(session, tools, "issue_refund", { order: "A-23", amount: 900 })));
console.log(JSON.stringify(await call(session, tools, "drop_table", { name: "orders" })));
await post("/v1/sessions/end", { session });
