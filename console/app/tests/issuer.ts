// An OpenID Connect issuer for tests of the login: its page, codes with PKCE, tokens that are really signed, and refresh
// tokens that are good once. It shares no code with the console.
import { type KeyObject, createHash, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { type IncomingMessage, type Server, createServer } from "node:http";
import { listen } from "./harness";

export const clientId = "postdate-console";
export const audience = "https://postdate.test";

interface Grant { challenge: string; redirect: string; audience: string }

export class Issuer {
  private readonly codes = new Map<string, Grant>();
  private readonly renewals = new Map<string, Grant>();
  private readonly privateKey: KeyObject;
  private readonly jwk: object;
  private readonly server: Server;
  url = "";
  /** lasts is for how many seconds access tokens are good. */
  lasts = 3600;
  /** claims are those of access tokens, besides the usual ones. */
  claims: Record<string, unknown> = { tenant: "acme", scope: "sched:r ops:r" };
  /** given counts tokens by the kind of grant that they were given for. */
  readonly given = { authorization_code: 0, refresh_token: 0 };
  /** ended: it takes no refresh tokens any more. */
  ended = false;

  private constructor() {
    const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    this.privateKey = privateKey;
    this.jwk = { ...publicKey.export({ format: "jwk" }), kid: "k1", use: "sig", alg: "RS256" };
    this.server = createServer((request, response) => {
      void this.answer(request).then(({ status = 200, headers = {}, body = "" }) => {
        const text = typeof body === "string" ? body : JSON.stringify(body);
        const type = typeof body === "string" ? "text/html; charset=utf-8" : "application/json";
        response.writeHead(status, { "Content-Type": type, "Access-Control-Allow-Origin": "*", ...headers }).end(text);
      });
    });
  }

  static async start(): Promise<Issuer> {
    const issuer = new Issuer();
    issuer.url = `http://${await listen(issuer.server)}`;
    return issuer;
  }

  end() {
    this.server.closeAllConnections();
    this.server.close();
  }

  private async answer(request: IncomingMessage): Promise<{ status?: number; headers?: Record<string, string>; body?: string | object }> {
    const url = new URL(request.url!, this.url);
    switch (url.pathname) {
      case "/.well-known/openid-configuration":
        return {
          body: {
            issuer: this.url, jwks_uri: `${this.url}/keys`, authorization_endpoint: `${this.url}/authorize`, token_endpoint: `${this.url}/token`,
            response_types_supported: ["code"], subject_types_supported: ["public"], id_token_signing_alg_values_supported: ["RS256"],
            code_challenge_methods_supported: ["S256"],
          },
        };
      case "/keys":
        return { body: { keys: [this.jwk] } };
      case "/authorize":
        return this.page(url.searchParams);
      case "/token": {
        let form = "";
        for await (const piece of request) form += piece;
        return this.tokens(new URLSearchParams(form));
      }
    }
    return { status: 404 };
  }

  /** page asks whoever logs in for a yes or a no, which are links back to the client. */
  private page(asked: URLSearchParams) {
    const fault = asked.get("client_id") !== clientId || asked.get("response_type") !== "code" || asked.get("code_challenge_method") !== "S256" || !asked.get("state");
    if (fault) return { status: 400, body: "this is no request for a login" };
    const redirect = asked.get("redirect_uri")!;
    const code = randomUUID();
    this.codes.set(code, { challenge: asked.get("code_challenge")!, redirect, audience: asked.get("audience")! });
    const back = (answer: Record<string, string>) => `${redirect}?${new URLSearchParams({ ...answer, state: asked.get("state")! })}`.replaceAll("&", "&amp;");
    return {
      body: `<!doctype html><html lang="en"><title>Issuer</title><h1>Log in as alice?</h1>
        <a href="${back({ code })}">Yes</a> <a href="${back({ error: "access_denied", error_description: "alice said <b>no</b>" })}">No</a>`,
    };
  }

  private tokens(form: URLSearchParams) {
    const kind = form.get("grant_type") as keyof Issuer["given"];
    const grants = kind === "refresh_token" ? this.renewals : this.codes;
    const ticket = form.get(kind === "refresh_token" ? "refresh_token" : "code") ?? "";
    const grant = grants.get(ticket);
    grants.delete(ticket);
    const verified = createHash("sha256").update(form.get("code_verifier") ?? "").digest("base64url") === grant?.challenge;
    const good = kind === "refresh_token" ? !this.ended : verified && form.get("redirect_uri") === grant?.redirect;
    if (!grant || !good || form.get("client_id") !== clientId) return { status: 400, body: { error: "invalid_grant", error_description: "it is used or has ended" } };
    this.given[kind]++;
    const refresh = randomUUID();
    this.renewals.set(refresh, grant);
    const access = this.token({ aud: grant.audience, ...this.claims });
    const id = this.token({ aud: clientId });
    return { headers: { "Cache-Control": "no-store" }, body: { access_token: access, id_token: id, token_type: "Bearer", expires_in: this.lasts, refresh_token: refresh } };
  }

  private token(claims: object): string {
    const now = Math.floor(Date.now() / 1000);
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const text = `${part({ alg: "RS256", kid: "k1", typ: "JWT" })}.${part({ iss: this.url, sub: "alice", iat: now, exp: now + this.lasts, jti: randomUUID(), ...claims })}`;
    return `${text}.${sign("sha256", Buffer.from(text), this.privateKey).toString("base64url")}`;
  }
}
