// Calls of the API, by the types that the TypeScript client has generated from its OpenAPI document.
import { signal } from "@preact/signals";
import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "../../../clients/typescript/src/generated";
import { fresh } from "./oidc";
import { caller, credential, leave, sessions, tenant } from "./session";

export type Schemas = components["schemas"];
export type Problem = Schemas["Problem"];

/** lost says that the last call got no answer; "": it got one. The frame shows it. */
export const lost = signal("");

// What pages call the API's parameters and members, where that is another word.
const labels: Record<string, string> = {
  from: "Due from", to: "Due before", idPrefix: "Id begins with", executionTime: "Due",
  requestsPerSecond: "Requests per second", messagesPerSecond: "Messages per second", pendingMax: "Pending messages",
  bytesMax: "Pending bytes", channelsMax: "Channels", maxPerSecond: "Messages per second", maxInFlight: "Messages in flight",
  expires: "Expires after", channels: "Channels that it may use",
};

/** Refusal is an answer that says no: it did what its Problem says, and nothing else. It names the page's field at fault. */
export class Refusal extends Error {
  constructor(readonly problem: Problem) {
    const label = labels[problem.parameter ?? problem.pointer?.split("/")[1] ?? ""];
    super(label ? `${label}: ${problem.detail}` : problem.detail);
  }
}

/** NoAnswer is what becomes of a call without an answer: nobody knows whether it was carried out. */
export class NoAnswer extends Error {
  constructor() {
    super("There was no answer, so it is not known whether this was done. Look again once the node answers.");
  }
}

/** NotMade is what becomes of a call that was given up before it was sent: it was surely not carried out. */
export class NotMade extends Error {
  constructor(what: string) {
    super(`${what} before this was sent, so it was not done. Do it again if you still want it.`);
  }
}

/** unanswered has the frame say that the node does not answer, and throws. */
export function unanswered(): never {
  lost.value = "This node does not answer.";
  throw new NoAnswer();
}

const door: Middleware = {
  async onRequest({ request, schemaPath }) {
    // Somebody may log in or choose another tenant meanwhile: what was asked for is for those of now.
    const session = sessions.value;
    const actsFor = tenant.value;
    await fresh();
    if (sessions.value !== session) throw new NotMade("Somebody logged in or out");
    if (tenant.value !== actsFor) throw new NotMade("Another tenant was chosen");
    if (credential.value) request.headers.set("Authorization", `Bearer ${credential.value}`);
    if (actsFor && schemaPath !== "/v1/whoami") request.headers.set("Postdate-Tenant", actsFor);
  },
  onResponse({ request, response }) {
    // A proxy that has no good answer does not know what became of a write. A Problem says itself what is known.
    const isProblem = response.headers.get("Content-Type")?.startsWith("application/problem+json");
    if (response.status >= 500 && request.method !== "GET" && !isProblem) unanswered();
  },
};

export const api = createClient<paths>({
  baseUrl: location.origin,
  fetch: (request) => fetch(request, { credentials: "omit", cache: "no-store" }),
});
api.use(door);

/**
 * answer waits for a call and returns what it answered. It throws a Refusal if the API says no, NoAnswer if there is no
 * answer or a write got one that is not from Postdate, and NotMade if the call was given up.
 */
export async function answer<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const session = sessions.value;
  let result;
  try {
    result = await call;
  } catch (fault) {
    if (fault instanceof NotMade || (fault instanceof DOMException && fault.name === "AbortError")) throw fault;
    unanswered();
  }
  lost.value = "";
  const { data, error, response } = result;
  if (response.ok) return data as T;
  const problem = asProblem(error, response);
  // A late answer to a call of an earlier session says nothing of the credential of now.
  if (response.status === 401 && sessions.value === session && (credential.value || caller.value)) leave(problem.detail);
  throw new Refusal(problem);
}

// A proxy in between may answer with something else than a Problem.
function asProblem(error: unknown, response: Response): Problem {
  if (error && typeof error === "object" && "detail" in error) return error as Problem;
  return {
    type: "about:blank",
    title: response.statusText,
    status: response.status,
    detail: `The answer was ${response.status} ${response.statusText}, which does not come from Postdate.`,
  } as unknown as Problem;
}
