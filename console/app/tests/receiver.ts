// A receiver of webhooks, which answers as a test wants.
import { type Server, createServer } from "node:http";
import { test as base, listen } from "./harness";

/** Receiver answers each request with its status, and with the payload's member `reason` as the body. */
export class Receiver {
  status = 400;
  /** got are the ids of the messages that were accepted. */
  got: string[] = [];
  /** held are the requests that wait for a release, if hold is set. */
  hold = false;
  private held: (() => void)[] = [];
  private address = "";
  private constructor(private readonly server: Server) {}

  static async start(): Promise<Receiver> {
    const server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      const payload = JSON.parse(Buffer.concat(chunks).toString());
      if (receiver.hold) await new Promise<void>((go) => receiver.held.push(go));
      const status = receiver.status === 400 && request.url === "/gone" ? 410 : receiver.status;
      if (status === 200) receiver.got.push(String(request.headers["ce-id"]));
      response.writeHead(status).end(status === 200 ? "" : payload.reason);
    });
    const receiver = new Receiver(server);
    receiver.address = await listen(server);
    return receiver;
  }

  /** holds is how many requests are held. */
  get holds() {
    return this.held.length;
  }

  release() {
    this.hold = false;
    for (const go of this.held.splice(0)) go();
  }

  url(path: string) {
    return `http://${this.address}${path}`;
  }

  end() {
    this.server.closeAllConnections();
    this.server.close();
  }
}

/** flags make a node reach receivers, and try once. */
export const flags = ["--webhook-allow", "127.0.0.1", "--retry-max-attempts", "1"];

export const test = base.extend<{ receiver: Receiver }>({
  receiver: async ({}, use) => {
    const receiver = await Receiver.start();
    await use(receiver);
    receiver.end();
  },
});
