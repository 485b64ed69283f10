import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { TestContext } from "node:test";
import { Client, type ClientOptions } from "../src/index.ts";

export type Answers = (request: IncomingMessage, body: string, response: ServerResponse) => void;

/** Starts a server, and returns a client of it. */
export async function clientOf(
  t: TestContext,
  answer: Answers,
  options: ClientOptions = {},
): Promise<Client> {
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk: Buffer) => (body += chunk.toString()));
    request.on("end", () => {
      answer(request, body, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as { port: number };
  return new Client({ server: `http://127.0.0.1:${String(port)}`, log: () => undefined, ...options });
}

export const problem = (name: string, status: number) => ({
  type: `urn:postdate:problem:${name}`,
  status,
  detail: name,
});
