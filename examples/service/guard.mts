// Ask the guard's service before each tool call. No packages; Node 22.18 or later runs it as it is.
//
//   bylaw guard serve --policy guard.yaml --store guard.db
//   BYLAW_KEY=$(bylaw guard keys create bot --store guard.db --scope agent --agent support) node guard.mts

type Json = Record<string, unknown>;
type Call = { tool: string; arguments: Json };
/** The parts of an answer that are used here; `/v1/openapi.json` has all of them. */
type Decision = {
  action: "allow" | "pause" | "block" | "terminate_session";
  reason: string;
  advice?: string;
  review: string | null;
  call_id?: string;
  call: Call | null;
};
type ReviewAnswer = { status: "pending" | "approved" | "rejected" | "expired" | "used"; call: Call | null };
type Tools = Record<string, (args: any) => Promise<unknown>>;

const URL_OF_SERVICE: string = process.env.BYLAW_URL ?? "http://127.0.0.1:8787";
const HEADERS = { authorization: `Bearer ${process.env.BYLAW_KEY}`, "content-type": "application/json" };

/** One request; an error of the service becomes an exception. */
async function ask<T>(path: string, body?: Json, seconds: number = 5): Promise<T> {
  const response = await fetch(new URL(path, URL_OF_SERVICE), {
    method: body === undefined ? "GET" : "POST",
    headers: HEADERS,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(seconds * 1000),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error.message);
  return answer as T;
}

/** Runs a tool if the guard allows the call. Without an answer nothing runs: whatever `ask` throws goes to the caller. */
export async function run(session: string, tools: Tools, tool: string, args: Json): Promise<unknown> {
  let decision = await ask<Decision>("/v1/decide", { session, tool, arguments: args });
  if (decision.action === "pause") decision = await resume(session, { tool, arguments: args }, decision);
  if (decision.action !== "allow" || decision.call === null) return { denied: decision.reason, advice: decision.advice };
  // A person may have changed the call: run `decision.call`, and nothing else.
  const allowed = decision.call;
  let content: unknown;
  let is_error = false;
  try {
    content = await tools[allowed.tool]!(allowed.arguments);
  } catch (problem) {
    [content, is_error] = [String(problem), true];
  }
  await ask("/v1/record", { session, call_id: decision.call_id, content, is_error });
  return content;
}

/** Waits for a person, and asks again with the review. */
async function resume(session: string, call: Call, paused: Decision): Promise<Decision> {
  const seconds = Number(process.env.BYLAW_WAIT ?? 30);
  const answer = await ask<ReviewAnswer>(`/v1/reviews/${paused.review}/wait?timeout=${seconds}`, undefined, seconds + 5);
  if (answer.status !== "approved") return paused;
  return ask<Decision>("/v1/decide", { session, ...(answer.call ?? call), review: paused.review });
}

const tools: Tools = {
  lookup_order: async ({ order }: { order: string }) => ({ order, total: 199 }),
  issue_refund: async ({ amount }: { amount: number }) => `${amount} refunded`,
};
const session = process.argv[2] ?? "ticket-7";
const calls: [string, Json][] = [
  ["lookup_order", { order: "A-23" }],
  ["issue_refund", { order: "A-23", amount: 199 }],
  ["issue_refund", { order: "A-23", amount: 900 }],
  ["drop_table", { name: "orders" }],
];
for (const [tool, args] of calls) console.log(JSON.stringify(await run(session, tools, tool, args)));
await ask("/v1/sessions/end", { session });
