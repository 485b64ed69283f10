// Login at the OpenID Connect issuer that the node names: with an authorization code, and PKCE in place of a secret.
// Tokens are not looked into: the API says whether they are good, and what for.
import { signal } from "@preact/signals";
import * as oauth from "oauth4webapi";
import { lost, unanswered } from "./api";
import { type Renewal, farewell, keep, leave, renewal, renewed } from "./session";

/** Config is what a node says to whoever has not logged in. */
export interface Config {
  version: string;
  /** keys: calls need a key or token. */
  keys: boolean;
  login?: { issuer: string; clientId: string; scope: string; audience: string; resource?: string };
}

export const config = signal<Config>();

/** readConfig reads config once. It throws NoAnswer if the node does not answer, or something else does in its place. */
export async function readConfig(): Promise<Config> {
  if (!config.value) {
    try {
      const response = await fetch("/console/config.json", { credentials: "omit", cache: "no-store" });
      const said = await response.json();
      if (!response.ok || typeof said.keys !== "boolean") unanswered(); // an error may be JSON too
      config.value = said;
    } catch {
      unanswered();
    }
    lost.value = "";
  }
  return config.value!;
}

/** issuerHost is where people log in; "": they need a key. */
export const issuerHost = () => config.value?.login && new URL(config.value.login.issuer).host;

const here = "/console/login";
const redirectURI = location.origin + here;

// Waiting is what a tab keeps while somebody is at the issuer.
interface Waiting { state: string; verifier: string; page: string }
const keptWaiting = "postdate.login";

// Calls wait for a renewal: an issuer that hangs does not stop them for longer.
const answerMs = 5000;

async function provider() {
  const login = (await readConfig()).login!;
  const issuer = new URL(login.issuer);
  const insecure = issuer.protocol === "http:"; // the node allows that on loopback only
  const options = { [oauth.allowInsecureRequests]: insecure, signal: () => AbortSignal.timeout(answerMs) };
  const as = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, options));
  const resource: Record<string, string> = login.resource ? { resource: login.resource } : {};
  return { login, as, resource, client: { client_id: login.clientId }, options: { ...options, additionalParameters: resource } };
}

/** goToIssuer leaves for the issuer. It comes back to the page that is open now. */
export async function goToIssuer() {
  try {
    if (!isSecureContext) throw new Error("browsers can log in there only from https:// or localhost");
    const { login, as, resource } = await provider();
    const state = oauth.generateRandomState();
    const verifier = oauth.generateRandomCodeVerifier();
    const to = new URL(as.authorization_endpoint!);
    const parameters = {
      response_type: "code",
      client_id: login.clientId,
      redirect_uri: redirectURI,
      scope: login.scope,
      audience: login.audience,
      state,
      code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
      code_challenge_method: "S256",
      ...resource,
    };
    for (const [name, value] of Object.entries(parameters)) to.searchParams.set(name, value);
    const waiting: Waiting = { state, verifier, page: location.pathname + location.search };
    sessionStorage.setItem(keptWaiting, JSON.stringify(waiting));
    location.assign(to);
  } catch (fault) {
    farewell.value = inWords(fault);
  }
}

/** comeBack takes the issuer's answer if the address is one, and reports whether somebody is logged in by it. */
export async function comeBack(): Promise<boolean> {
  if (location.pathname !== here) return false;
  const parameters = new URLSearchParams(location.search);
  const waiting: Waiting | null = JSON.parse(sessionStorage.getItem(keptWaiting) ?? "null");
  sessionStorage.removeItem(keptWaiting);
  history.replaceState(null, "", pageToShow(waiting?.page));
  if (!parameters.has("code") && !parameters.has("error")) return false;
  try {
    if (!waiting) throw new Error("this tab did not ask for it. Log in again");
    const { as, client, options } = await provider();
    const answer = oauth.validateAuthResponse(as, client, parameters, waiting.state);
    const response = await oauth.authorizationCodeGrantRequest(as, client, oauth.None(), answer, redirectURI, waiting.verifier, options);
    const tokens = await oauth.processAuthorizationCodeResponse(as, client, response);
    keep(tokens.access_token, renewalOf(tokens));
    return true;
  } catch (fault) {
    farewell.value = inWords(fault);
    return false;
  }
}

/** pageToShow is a page of the console, whatever the tab's storage says. */
function pageToShow(page = "/console"): string {
  const url = new URL(page, location.origin);
  const ours = url.origin === location.origin && url.pathname.startsWith("/console/") && url.pathname !== here;
  return ours ? url.pathname + url.search : "/console";
}

/** renewalOf is how tokens are renewed, by the refresh token of before if they bring none. */
function renewalOf({ expires_in, refresh_token = "" }: oauth.TokenEndpointResponse, before = ""): Renewal | undefined {
  const token = refresh_token || before;
  if (!token || !expires_in) return undefined;
  return { token, at: Date.now() + 1000 * Math.max(expires_in - 30, expires_in / 2) };
}

let renewing: Promise<void> | undefined;

/** fresh waits until a token that is about to expire is replaced, if it can be. */
export async function fresh() {
  const kept = renewal.value;
  if (!kept || Date.now() < kept.at) return;
  renewing ??= renew(kept).finally(() => (renewing = undefined));
  await renewing;
}

async function renew(kept: Renewal) {
  try {
    const { as, client, options } = await provider();
    const response = await oauth.refreshTokenGrantRequest(as, client, oauth.None(), kept.token, options);
    const tokens = await oauth.processRefreshTokenResponse(as, client, response);
    if (renewal.value === kept) renewed(tokens.access_token, renewalOf(tokens, kept.token)); // else they have logged out
  } catch (fault) {
    if (renewal.value !== kept) return;
    if (fault instanceof oauth.ResponseBodyError) leave(`${issuerHost()} has ended the session: ${reason(fault)}. Log in again.`);
    else renewal.value = { ...kept, at: Date.now() + 5000 }; // what there is may still be good
  }
}

function reason(fault: oauth.ResponseBodyError | oauth.AuthorizationResponseError): string {
  const { error, error_description: more } = fault;
  return (more ? `${error} (${more})` : error).slice(0, 300);
}

function inWords(fault: unknown): string {
  const host = issuerHost();
  if (fault instanceof oauth.AuthorizationResponseError || fault instanceof oauth.ResponseBodyError) {
    return `${host} refused the login: ${reason(fault)}.`;
  }
  if (fault instanceof DOMException && fault.name === "TimeoutError") {
    return `${host} did not answer within ${answerMs / 1000} seconds. Log in again.`;
  }
  if (fault instanceof TypeError) {
    return `${host} does not answer this page. Its client must allow the origin ${location.origin} to ask for tokens.`;
  }
  return `The login at ${host} failed: ${(fault as Error).message}.`;
}
