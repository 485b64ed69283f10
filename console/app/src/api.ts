// Calls of the API, by the types that are generated from its OpenAPI document.
import { signal } from "@preact/signals";
import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./api.gen";
import { fresh } from "./oidc";
import { caller, credential, leave, tenant } from "./session";

export type Schemas = components["schemas"];
export type Problem = Schemas["Problem"];

/** lost says that the last call got no answer; "": it got one. The frame shows it. */
export const lost = signal("");

/** Refusal is an answer that says no: it did what its Problem says, and nothing else. */
export class Refusal extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

/** NoAnswer is what becomes of a call without an answer: nobody knows whether it was carried out. */
export class NoAnswer extends Error {
  constructor() {
    super("There was no answer, so it is not known whether this was done. Look again once the node answers.");
  }
}

/** unanswered has the frame say that the node does not answer, and throws. */
export function unanswered(): never {
  lost.value = "This node does not answer.";
  throw new NoAnswer();
}

const door: Middleware = {
  async onRequest({ request, schemaPath }) {
    await fresh();
    if (credential.value) request.headers.set("Authorization", `Bearer ${credential.value}`);
    if (tenant.value && schemaPath !== "/v1/whoami") request.headers.set("Postdate-Tenant", tenant.value);
  },
};

export const api = createClient<paths>({
  baseUrl: location.origin,
  fetch: (request) => fetch(request, { credentials: "omit", cache: "no-store" }),
});
api.use(door);

/**
 * answer waits for a call and returns what it answered. It throws a Refusal if the API says no, and NoAnswer if there is
 * no answer.
 */
export async function answer<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  let result;
  try {
    result = await call;
  } catch (fault) {
    if (fault instanceof DOMException && fault.name === "AbortError") throw fault;
    unanswered();
  }
  lost.value = "";
  const { data, error, response } = result;
  if (response.ok) return data as T;
  const problem = asProblem(error, response);
  if (response.status === 401 && (credential.value || caller.value)) leave(problem.detail);
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
